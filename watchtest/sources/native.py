"""The system's word on changed files where it is not Linux. The only module with watchfiles.

What watchfiles 1.x does, and what is done about it here:
- A RustNotify is subscribed when its constructor returns; that takes a while, so it is made in a thread.
- When its timeout passes it clears what has arrived, in a moment that may hold an event. So it is given no timeout.
- A path that is not UTF-8 makes it fail for good, so it is made anew.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

from watchtest.core.events import EVERYTHING
from watchtest.sources.poll import Flag

IS_RECURSIVE = sys.platform in ("darwin", "win32")
WatcherFailed = WatchfilesRustInternalError


class Native:
    """FSEvents and Windows watch a whole tree at once; elsewhere each folder that matters is subscribed by itself."""

    is_by_folder = not IS_RECURSIVE

    def __init__(self, root: str, folders: Sequence[str], step_ms: int) -> None:
        self._root = root
        self._step_ms = step_ms
        paths = [root] if IS_RECURSIVE else [f"{root}/{folder}".rstrip("/") for folder in folders]
        # Its last argument, which should ignore folders without permission, swallows every other error, too.
        self._notify = RustNotify(paths, False, False, 0, IS_RECURSIVE, False)

    def wait(self, stop: Flag) -> frozenset[str]:
        # It returns one or two steps after an event; a longer debounce of its own would hide that more come in.
        found = self._notify.watch(0, self._step_ms, 0, stop)
        if isinstance(found, str):
            return frozenset()  # stopped
        return frozenset(self._relative(path) for _, path in found)

    def end(self) -> None:
        """It looks at the flag in every step."""

    def close(self) -> None:
        self._notify.close()

    def _relative(self, path: str) -> str:
        return path.removeprefix(self._root).replace(os.sep, "/").strip("/") or EVERYTHING
