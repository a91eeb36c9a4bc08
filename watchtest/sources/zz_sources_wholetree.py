"""Changed paths of a whole tree, where the system watches those: macOS, Windows. The only module with watchfiles.

What watchfiles 1.x does, and what is done about it here:
- A RustNotify is subscribed when its constructor returns; that takes a while, so it is made in a thread.
- When its timeout passes it clears what has arrived, in a moment that may hold an event. So it is given no timeout.
- A path that is not UTF-8 makes it fail for good, so it is made anew.
"""

from __future__ import annotations

import os
import threading

from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

from watchtest.core.events import EVERYTHING
from watchtest.sources.streams import WatcherFailed

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
