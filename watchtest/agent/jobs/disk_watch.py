"""Notices a job that fills a disk of the box, before nothing else can be written there, and deletes what it wrote."""

from __future__ import annotations

import os
import stat
import time
from typing import Dict, Iterator, List, Optional

LARGEST_RESERVE = 1024 * 1024 * 1024
RESERVED_PART = 20
"""A job may leave one part of so many of a disk free."""
CHECK_EVERY_S = 0.25
WORTH_DELETING = 64 * 1024
SANDBOX = "WATCHTEST_SANDBOX"
"""The variable of an agent in bubblewrap, whose /tmp belongs to the box. Elsewhere it may be that of the user."""


class DiskWatch:
    """Watches the disks behind these folders during a job. A disk that is nearly full already is not watched."""

    def __init__(self, root: str, others: List[str]) -> None:
        self._root = root
        self._cleaned = [root, "/tmp", "/var/tmp"] if SANDBOX in os.environ else [root]
        self._began = time.time()
        self._next_check_at = 0.0
        self._watched: Dict[int, str] = {}
        for folder in (root, *others):
            device, free = _device(folder), _surplus(folder)
            if device is not None and free is not None and free > 0:
                self._watched.setdefault(device, folder)

    def filled(self) -> str:
        """Return a folder on whose disk too little is left; "" if there is none."""
        now = time.monotonic()
        if now < self._next_check_at:
            return ""
        self._next_check_at = now + CHECK_EVERY_S
        return self.filled_now()

    def filled_now(self) -> str:
        surplus = ((folder, _surplus(folder)) for folder in self._watched.values())
        return next((folder for folder, left in surplus if left is not None and left < 0), "")

    def clean(self) -> None:
        """Delete the larger files that were written since the job began; the mirror restores its own."""
        for folder in self._cleaned:
            for file in _written_since(folder, self._began):
                try:
                    os.unlink(file)
                except OSError:
                    continue  # it is not ours, or gone


def _written_since(folder: str, began: float) -> Iterator[str]:
    """Yield the larger files below the folder that were written since then, without other disks.

    Not recursive: a test may have made the tree as deep as it likes.
    """
    device = _device(folder)
    waiting = [folder]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue  # a test has taken the permissions away, or the path is too long
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(found.st_mode) and found.st_dev == device:
                waiting.append(entry.path)
            elif stat.S_ISREG(found.st_mode) and found.st_ctime >= began and found.st_size >= WORTH_DELETING:
                yield entry.path


def _device(folder: str) -> Optional[int]:
    try:
        return os.lstat(folder).st_dev
    except OSError:
        return None


def _surplus(folder: str) -> Optional[int]:
    """Return how many bytes may still be written there before the reserve is touched."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    reserve = min(LARGEST_RESERVE, found.f_blocks * found.f_frsize // RESERVED_PART)
    return found.f_bavail * found.f_frsize - reserve
