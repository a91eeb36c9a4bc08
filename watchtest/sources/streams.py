"""Streams of changed paths other than inotify: watchfiles for a whole tree (macOS, Windows), and polling anywhere.

This is the only module that imports watchfiles. Quirks of watchfiles 1.x and how they are handled:
- A RustNotify is subscribed when its constructor returns. That takes a while, so it is created in a thread.
- When its timeout passes, it drops the events that arrive at that moment. So it gets no timeout.
- A path that is not UTF-8 makes it fail for good. So it is replaced by a new one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

from watchtest.core.events import EVERYTHING
from watchtest.sources.entry import Signature, signature_of


class StreamFailed(Exception):
    """The stream reports no more changes and has to be replaced."""


class ChangeStream(Protocol):
    """Reports changed paths, relative to the workspace."""

    def wait(self) -> frozenset[str]:
        """Block until something changes and return the paths; empty once `end` was called.

        EVERYTHING stands for the workspace itself and for unknown paths. After an OSError or StreamFailed the stream
        cannot be used any more.
        """

    def end(self) -> None:
        """Make a running call of `wait` return soon."""

    def close(self) -> None:
        """Release what the stream holds. Call this only when no `wait` is running."""


SHARE = 10
"""At most one part in this many of the time is spent on scanning."""


class PollStream:
    """Scans all files of the folders that matter every `interval_s`; the first time in its constructor.

    It compares times, sizes, inodes and modes, never content; the snapshot decides what really changed.
    """

    def __init__(self, root: str, folders: Callable[[], Sequence[str]], interval_s: float) -> None:
        self._root = root
        self._folders = folders
        self._interval_s = interval_s
        self._scan_s = 0.0
        self._is_ended = threading.Event()
        self._last = self._scan()

    def end(self) -> None:
        self._is_ended.set()

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def wait(self) -> frozenset[str]:
        while True:
            if self._is_ended.wait(max(self._interval_s, self._scan_s * SHARE)):
                return frozenset()
            before, self._last = self._last, self._scan()
            changed = frozenset(path for path, _ in before.items() ^ self._last.items())
            if changed:
                return changed

    def _scan(self) -> dict[str, Signature]:
        began = time.monotonic()
        found: dict[str, Signature] = {}
        for folder in self._folders():
            prefix = f"{folder}/" if folder else ""
            try:
                with os.scandir(f"{self._root}/{folder}" if folder else self._root) as children:
                    for child in children:
                        is_folder = child.is_dir(follow_symlinks=False)
                        status = child.stat(follow_symlinks=False)
                        # The times of a folder change with its content, which is compared anyway.
                        found[prefix + child.name] = (0, 0, 0, status.st_ino, 0) if is_folder else signature_of(status)
            except OSError:
                continue  # gone or unreadable since it was listed: the missing paths count as changed
        self._scan_s = time.monotonic() - began
        return found


STEP_MS = 5
"""How often watchfiles polls its queue; it reports one or two steps after an event."""


class TreeStream:
    """Watches a whole tree with watchfiles."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._is_ended = threading.Event()
        try:
            # The last argument is meant to ignore folders without permission, but it would swallow all other errors.
            self._notify = RustNotify([root], False, False, 0, True, False)
        except WatchfilesRustInternalError as error:
            raise StreamFailed(str(error)) from error

    def wait(self) -> frozenset[str]:
        try:
            # A longer debounce here would hide that events keep arriving.
            found = self._notify.watch(0, STEP_MS, 0, self._is_ended)
        except WatchfilesRustInternalError as error:
            raise StreamFailed(str(error)) from error
        if isinstance(found, str):
            return frozenset()  # stopped
        return frozenset(self._relative(path) for _, path in found)

    def _relative(self, path: str) -> str:
        return path.removeprefix(self._root).replace(os.sep, "/").strip("/") or EVERYTHING

    def end(self) -> None:
        self._is_ended.set()

    def close(self) -> None:
        self._notify.close()
