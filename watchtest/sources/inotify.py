"""Linux's own word on changed files. The only module with inotify_simple.

Why not watchfiles here, too: it looks two hundred times a second whether something has arrived, says nothing of an
overflow of the kernel's queue, and fails for good at a name that is not UTF-8. This one sleeps until it is woken.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable

from inotify_simple import INotify, flags

from watchtest.core.events import EVERYTHING
from watchtest.sources.poll import Flag

IN_A_FOLDER = flags.CREATE | flags.DELETE | flags.MODIFY | flags.ATTRIB | flags.MOVED_FROM | flags.MOVED_TO
OF_A_FOLDER = flags.DELETE_SELF | flags.MOVE_SELF
HOW = flags.ONLYDIR | flags.DONT_FOLLOW | flags.EXCL_UNLINK
LOST = flags.Q_OVERFLOW | flags.UNMOUNT


class Inotify:
    """Subscribed to these folders, relative to the root, and to none below. One `wait` at a time."""

    is_by_folder = True

    def __init__(self, root: str, folders: Iterable[str], step_ms: int) -> None:
        self._step_ms = step_ms
        self._inotify = INotify(nonblocking=True)
        self._folders: dict[int, str] = {}
        try:
            for folder in folders:
                path = f"{root}/{folder}" if folder else root
                self._folders[self._inotify.add_watch(path, IN_A_FOLDER | OF_A_FOLDER | HOW)] = folder
            self._ended = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except BaseException:
            self._inotify.close()
            raise
        self._poll = select.poll()
        self._poll.register(self._inotify.fileno(), select.POLLIN)
        self._poll.register(self._ended, select.POLLIN)

    def wait(self, stop: Flag) -> frozenset[str]:
        """Changed paths, a step after the last of them, or two after the first; none once it was ended."""
        found = frozenset[str]()
        while not found:
            self._poll.poll()
            if stop.is_set():
                return frozenset()
            found = self._found()
        deadline = time.monotonic() + 2 * self._step_ms / 1000
        while not stop.is_set() and time.monotonic() < deadline and self._poll.poll(self._step_ms):
            found |= self._found()
        return found

    def end(self) -> None:
        os.eventfd_write(self._ended, 1)

    def close(self) -> None:
        self._inotify.close()
        os.close(self._ended)

    def _found(self) -> frozenset[str]:
        return frozenset(self._path(event.wd, event.mask, event.name) for event in self._inotify.read(timeout=0)) - {""}

    def _path(self, watch: int, mask: int, name: str) -> str:
        if mask & LOST:
            return EVERYTHING
        folder = self._folders.get(watch)
        if folder is None or mask & flags.IGNORED:
            return ""  # the last word on a folder whose end was told of
        return (f"{folder}/{name}" if folder else name) if name else folder or EVERYTHING
