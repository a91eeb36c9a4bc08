"""Observes by inotify which files of the project are opened, also by native libraries. Knows nothing of scopes."""

from __future__ import annotations

import fcntl
import os
import struct
from itertools import islice
from os import fsdecode, getpid, read, sep
from typing import Any, Collection, Dict, Iterator, Set

try:
    from select import EPOLLIN, epoll  # at import: gevent removes it later
except ImportError:  # not Linux
    EPOLLIN, epoll = 0, None  # type: ignore[assignment, misc]

OPEN, ONLY_FOLDERS, IS_FOLDER, OVERFLOW = 0x20, 0x01000000, 0x40000000, 0x4000
HEAD = struct.Struct("iIII")
MAX_FOLDERS = 3000
"""Further folders of a larger project are not observed."""
SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages"})
CODE_SUFFIXES = (b".py", b".pyc")
"""The recorder observes imports by other means."""
READ_SIZE = 1024 * 1024
LOST = ""
"""In place of a path: events were lost."""


def moved_out_of_reach(file: int) -> int:
    """Give an open file a high number: tests and their children often close the low ones and use them again."""
    try:
        return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 100)
    finally:
        os.close(file)


class OpenedFiles:
    """The files that this process opens, but not its forks. Paths are relative to the project."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._pid = getpid()
        self._file = -1
        self._folders: Dict[int, str] = {}
        self._has_failed = False
        self._poll: Any = None
        """Checks whether there is anything to read, which is much faster than trying to read."""
        self.by_python: Set[str] = set()
        """Paths that Python itself opens: the recorder knows their callers already."""

    def start(self) -> bool:
        """Start watching. Returns False if the kernel offers no inotify."""
        if self._poll is not None:
            return True
        if epoll is None or self._has_failed:
            return False
        try:
            self._begin()
        except (ImportError, OSError, AttributeError):
            self._has_failed = True
        return not self._has_failed

    def _begin(self) -> None:
        import ctypes  # some Pythons are built without it

        library: Any = ctypes.CDLL(None, use_errno=True)
        file = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if file < 0:
            raise OSError(ctypes.get_errno(), "no inotify")
        self._file = moved_out_of_reach(file)
        for folder in self._walk():
            watch = library.inotify_add_watch(self._file, os.fsencode(folder), OPEN | ONLY_FOLDERS)
            if watch >= 0:
                self._folders[watch] = folder
        poller = epoll()
        poller.register(self._file, EPOLLIN)
        self._poll = poller.poll

    def _walk(self) -> Iterator[str]:
        for folder, inner, _ in islice(os.walk(self._root), MAX_FOLDERS):
            yield folder
            inner[:] = [name for name in inner if not name.startswith(".") and name not in SKIPPED_FOLDERS]

    def collect(self) -> Collection[str]:
        """Return the paths that were opened since the last time, but not by Python. Called several times per test."""
        if self._poll is None or getpid() != self._pid:
            return ()
        found: Set[str] = set()
        try:
            while self._poll(0, 1):
                found.update(self._paths(read(self._file, READ_SIZE)))
        except BlockingIOError:
            pass  # another thread was faster
        except OSError:  # a test has closed it
            self._poll = None
            self.start()
            found.add(LOST)
        found -= self.by_python
        self.by_python.clear()
        return found

    def _paths(self, data: bytes) -> Iterator[str]:
        start = 0
        while start < len(data):
            watch, mask, _, size = HEAD.unpack_from(data, start)
            start += HEAD.size + size
            if mask & OVERFLOW:
                yield LOST
            name = data[start - size : start].rstrip(b"\0")
            if name and not mask & IS_FOLDER and watch in self._folders and not name.endswith(CODE_SUFFIXES):
                yield (self._folders[watch] + sep + fsdecode(name))[len(self._root) + 1 :].replace(sep, "/")

    def stop(self) -> None:
        if self._poll is not None and getpid() == self._pid:
            os.close(self._file)
        self._file, self._poll = -1, None
