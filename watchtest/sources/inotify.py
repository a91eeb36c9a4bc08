"""Reports changed paths with inotify (Linux): at once, and at no cost while nothing changes.

watchfiles polls its queue 200 times a second, which takes a percent of a core, reports 5 to 10 ms late and does not
report an overflow of the kernel's queue. This is the only module that imports inotify_simple.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence

from inotify_simple import INotify, flags

from watchtest.core.events import EVERYTHING

QUIET_MS = 3
"""A save causes several events; they are reported once none has arrived for this long."""
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


class InotifyStream:
    """Watches each of the given folders of a workspace, not recursively.

    The folders are subscribed when the constructor returns; it raises OSError if that is impossible.
    """

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
        """Block until something changes and return the relative paths; empty once `end` was called."""
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
        if folder is None or mask & flags.IGNORED:  # the folder is gone, which was reported already
            return ""
        return "/".join(part for part in (folder, name) if part) or EVERYTHING

    def end(self) -> None:
        """Make a running call of `wait` return."""
        os.write(self._end, b"x")

    def close(self) -> None:
        """Release the watches. Call this only when no `wait` is running."""
        self._events.close()
        self._close_pipe()

    def _close_pipe(self) -> None:
        os.close(self._ended)
        os.close(self._end)
