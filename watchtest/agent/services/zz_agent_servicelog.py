"""What a service prints: a file of bounded size with one older one beside it, and its last lines for reports."""

from __future__ import annotations

import os
import time
from typing import List

FILE_LIMIT = 5 * 1024 * 1024
TAIL_LIMIT = 16 * 1024
TAIL_LINES = 15
LINE_LENGTH = 300


class ServiceLog:
    """Never fails its writer: a full disk costs lines of the log, not the service."""

    def __init__(self, file: str, limit: int = FILE_LIMIT) -> None:
        self._file = file
        self._limit = limit
        self._tail = b""
        self._fd = -1
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._tail = (self._tail + piece)[-TAIL_LIMIT:]
        try:
            self._write(piece)
        except OSError:
            self.close()  # opened again with the next piece, when there may be room

    def say(self, words: str) -> None:
        """A line of our own, told from the service's by its start. Not part of the tail."""
        line = "--- watchtest {}: {}\n".format(time.strftime("%Y-%m-%d %H:%M:%S"), words)
        try:
            self._write(line.encode("utf-8", "replace"))
        except OSError:
            self.close()

    def forget_tail(self) -> None:
        self._tail = b""

    @property
    def tail(self) -> List[str]:
        """The last lines since the service was last started."""
        lines = self._tail.decode("utf-8", "replace").splitlines()
        return [line[:LINE_LENGTH] for line in lines if line.strip()][-TAIL_LINES:]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _write(self, piece: bytes) -> None:
        if self._fd < 0:
            os.makedirs(os.path.dirname(self._file), exist_ok=True)
            self._fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._size = os.fstat(self._fd).st_size
        if self._size + len(piece) > self._limit and self._size:
            self.close()
            os.replace(self._file, self._file + ".old")
            self._write(piece)
            return
        os.write(self._fd, piece)
        self._size += len(piece)
