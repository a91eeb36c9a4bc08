"""Changed paths from the kernel of Linux itself: at once, and at no cost while nothing changes.

watchfiles looks 200 times a second whether something has arrived, which is a whole percent of a core, tells 5 to 10 ms
late, and does not tell of a queue that overflowed. The only module with inotify_simple.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence

from inotify_simple import INotify, flags

from watchtest.core.events import EVERYTHING

QUIET_MS = 3
"""A save is several events; so long none must come before they are told of."""
CAP_S = 0.05
MASK = (
    flags.MODIFY
    | flags.ATTRIB
    | flags.CLOSE_WRITE
    | flags.MOVED_FROM
    | flags.MOVED_TO
    | flags.CREATE
    | flags.DELETE
    | flags.DELETE_SELF
    | flags.MOVE_SELF
    | flags.ONLYDIR
    | flags.DONT_FOLLOW
    | flags.EXCL_UNLINK
)
LOST = flags.Q_OVERFLOW | flags.UNMOUNT


class Inotify:
    """These folders of a workspace, each by itself. Subscribed when its constructor returns; that may be an OSError."""

    def __init__(self, root: str, folders: Sequence[str]) -> None:
        self._ended, self._end = os.pipe()
        try:
            self._events = INotify(nonblocking=True)
        except BaseException:
            self._close_pipe()
            raise
        try:
            self._folders = {
                self._events.add_watch(f"{root}/{folder}" if folder else root, MASK): folder for folder in folders
            }
        except BaseException:
            self.close()
            raise
        self._poll = select.poll()
        for descriptor in (self._events.fileno(), self._ended):
            self._poll.register(descriptor, select.POLLIN)

    def wait(self) -> frozenset[str]:
        """Relative paths that changed; none when it was ended. Blocks."""
        found: set[str] = set()
        deadline = 0.0
        while True:
            ready = self._poll.poll(QUIET_MS if found else None)
            if any(descriptor == self._ended for descriptor, _ in ready):
                return frozenset()
            if ready:
                found.update(map(self._path, self._events.read(timeout=0)))
                found.discard("")
                deadline = deadline or time.monotonic() + CAP_S
            if found and (not ready or time.monotonic() >= deadline):
                return frozenset(found)

    def _path(self, event: tuple[int, int, int, str]) -> str:
        watch, mask, _, name = event
        folder = self._folders.get(watch)
        if mask & LOST:
            return EVERYTHING
        if folder is None or mask & flags.IGNORED:  # the watch has ended with its folder, which was told
            return ""
        return "/".join(part for part in (folder, name) if part) or EVERYTHING

    def end(self) -> None:
        """Lets a call of `wait` return."""
        os.write(self._end, b"x")

    def close(self) -> None:
        """When nobody waits any more."""
        self._events.close()
        self._close_pipe()

    def _close_pipe(self) -> None:
        os.close(self._ended)
        os.close(self._end)
