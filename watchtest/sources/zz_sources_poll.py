"""Finds changes by looking again and again, where the system will not tell of them.

Looks at times to the nanosecond, sizes, inodes and modes, never at content; the snapshot decides what really changed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence

from watchtest.sources.entry import Signature, signature_of

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
