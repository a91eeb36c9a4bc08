"""What the kernel of Linux tells of files of the project that are opened: also by libraries in machine code, of which
nobody else hears. Knows nothing of scopes.
"""

from __future__ import annotations

import fcntl
import os
import struct
from os import fsdecode, getpid, read, sep
from typing import Any, Collection, Dict, Iterator, Set

try:
    from select import EPOLLIN, epoll  # now: gevent and the like take it away
except ImportError:  # not Linux: nobody is told anything
    EPOLLIN, epoll = 0, None  # type: ignore[assignment, misc]

OUT_OF_THE_WAY = 100
"""File numbers from here on: tests like to close the low ones, and to use them again."""
OPEN, ONLY_FOLDERS, IS_FOLDER, OVERFLOW = 0x20, 0x01000000, 0x40000000, 0x4000
HEAD = struct.Struct("iIII")
MOST_FOLDERS = 3000
"""In a larger project nobody is told anything."""
PASSED_OVER = frozenset({"node_modules", "__pycache__", "site-packages"})
CODE = (b".py", b".pyc")
"""Imports are heard of elsewhere."""
READ_SIZE = 1024 * 1024
LOST = ""
"""In place of a path: there were more than anybody could follow."""


class Opened:
    """Of one process; its forks hear nothing. Paths are relative to the project."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._pid = getpid()
        self._file = -1
        self._folders: Dict[int, str] = {}
        self._has_failed = False
        self._look: Any = None
        """Whether there is anything to read: much quicker than to try."""
        self.by_python: Set[str] = set()
        """Paths that Python opens: of those it is known already who asks."""

    def start(self) -> bool:
        """From now on. Whether this is possible here."""
        if self._look is not None:
            return True
        if epoll is None or self._has_failed:
            return False
        try:
            self._begin()
        except (ImportError, OSError, AttributeError):
            self._has_failed = True
        return not self._has_failed

    def _begin(self) -> None:
        import ctypes  # not in every Python

        library: Any = ctypes.CDLL(None, use_errno=True)
        first = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if first < 0:
            raise OSError(ctypes.get_errno(), "no inotify")
        try:
            self._file = fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
        finally:
            os.close(first)
        for folder in self._walk():
            watch = library.inotify_add_watch(self._file, os.fsencode(folder), OPEN | ONLY_FOLDERS)
            if watch >= 0:
                self._folders[watch] = folder
        waiting = epoll()
        waiting.register(self._file, EPOLLIN)
        self._look = waiting.poll

    def _walk(self) -> Iterator[str]:
        waiting, count = [self._root], 0
        while waiting and count < MOST_FOLDERS:
            folder = waiting.pop()
            count += 1
            yield folder
            try:
                with os.scandir(folder) as entries:
                    waiting += [
                        entry.path
                        for entry in entries
                        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
                        if entry.name not in PASSED_OVER
                    ]
            except OSError:
                continue

    def gather(self) -> Collection[str]:
        """Paths that were opened since the last time, but not by Python. Asked several times a test."""
        if self._look is None or getpid() != self._pid:
            return ()
        found: Set[str] = set()
        try:
            while self._look(0, 1):
                found.update(self._paths(read(self._file, READ_SIZE)))
        except BlockingIOError:
            pass  # another thread was quicker
        except OSError:  # a test has closed it
            self._look = None
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
            if name and not mask & IS_FOLDER and watch in self._folders and not name.endswith(CODE):
                yield (self._folders[watch] + sep + fsdecode(name))[len(self._root) + 1 :].replace(sep, "/")

    def stop(self) -> None:
        if self._look is not None and getpid() == self._pid:
            os.close(self._file)
        self._file, self._look = -1, None
