"""What tells of changed paths: inotify on Linux, a whole tree elsewhere, or a look every second.

Finds changes by looking again and again, where the system will not tell of them.

Looks at times to the nanosecond, sizes, inodes and modes, never at content; the snapshot decides what really changed.

Changed paths of a whole tree, where the system watches those: macOS, Windows. The only module with watchfiles.

What watchfiles 1.x does, and what is done about it here:
- A RustNotify is subscribed when its constructor returns; that takes a while, so it is made in a thread.
- When its timeout passes it clears what has arrived, in a moment that may hold an event. So it is given no timeout.
- A path that is not UTF-8 makes it fail for good, so it is made anew.
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


class WatcherFailed(Exception):
    """This source tells nothing any more; another may."""


class Source(Protocol):
    """Relative paths that changed, EVERYTHING for the workspace itself or for what nobody can tell."""

    def wait(self) -> frozenset[str]:
        """Blocks until there are some; none once it was ended. OSError and WatcherFailed: it is of no more use."""

    def end(self) -> None:
        """Lets a call of `wait` in another thread return soon."""

    def close(self) -> None:
        """When nobody waits any more."""


SHARE = 10
"""A look that takes long is taken less often: at most this part of the time is spent on looking."""


class Poll:
    """All files of the folders that matter, compared every `interval_s`. The first look is taken when it is made."""

    def __init__(self, root: str, folders: Callable[[], Sequence[str]], interval_s: float) -> None:
        self._root = root
        self._folders = folders
        self._interval_s = interval_s
        self._took_s = 0.0
        self._is_ended = threading.Event()
        self._last = self._look()

    def end(self) -> None:
        self._is_ended.set()

    def close(self) -> None:
        """There is nothing to close."""

    def wait(self) -> frozenset[str]:
        """Relative paths that changed; none when it was ended."""
        while True:
            due = time.monotonic() + max(self._interval_s, self._took_s * SHARE)
            if self._is_ended.wait(due - time.monotonic()):
                return frozenset()
            before, self._last = self._last, self._look()
            changed = frozenset(path for path, _ in before.items() ^ self._last.items())
            if changed:
                return changed

    def _look(self) -> dict[str, Signature]:
        began = time.monotonic()
        found: dict[str, Signature] = {}
        for folder in self._folders():
            prefix = f"{folder}/" if folder else ""
            try:
                with os.scandir(f"{self._root}/{folder}" if folder else self._root) as children:
                    for child in children:
                        is_folder = child.is_dir(follow_symlinks=False)
                        status = child.stat(follow_symlinks=False)
                        # A folder is only there or not: its times change with what is in it, which is seen anyway.
                        found[prefix + child.name] = (0, 0, 0, status.st_ino, 0) if is_folder else signature_of(status)
            except OSError:
                continue  # gone or closed since it was listed: what is missing now is a change by itself
        self._took_s = time.monotonic() - began
        return found


STEP_MS = 5
"""How often it looks whether something more arrived; it tells one or two steps after an event."""


class WholeTree:
    def __init__(self, root: str) -> None:
        self._root = root
        self._is_ended = threading.Event()
        try:
            # Its last argument, which should ignore folders without permission, swallows every other error, too.
            self._notify = RustNotify([root], False, False, 0, True, False)
        except WatchfilesRustInternalError as error:
            raise WatcherFailed(str(error)) from error

    def wait(self) -> frozenset[str]:
        """Relative paths that changed; none when it was ended. Blocks."""
        try:
            # A longer debounce of its own would hide that more come in.
            found = self._notify.watch(0, STEP_MS, 0, self._is_ended)
        except WatchfilesRustInternalError as error:
            raise WatcherFailed(str(error)) from error
        if isinstance(found, str):
            return frozenset()  # stopped
        return frozenset(self._relative(path) for _, path in found)

    def _relative(self, path: str) -> str:
        return path.removeprefix(self._root).replace(os.sep, "/").strip("/") or EVERYTHING

    def end(self) -> None:
        """Lets a call of `wait` return, within a step."""
        self._is_ended.set()

    def close(self) -> None:
        self._notify.close()
