"""Which paths of the tree are ours, on disk. Says nothing of what they hold."""

from __future__ import annotations

import os
from typing import Iterable, List, Set

from .frames import path_bytes, path_text
from .zz_agent_errors import explained


class Ledger:
    """The owned paths, on disk, so that the next agent knows what it may delete. Append-only between starts."""

    def __init__(self, file: bytes) -> None:
        self._file = file
        self.paths = _replay(file)
        self._compact()

    def add(self, paths: Iterable[str]) -> None:
        new = [path for path in paths if path not in self.paths]
        self._append(b"+", new)
        self.paths.update(new)

    def drop(self, paths: Iterable[str]) -> None:
        old = [path for path in paths if path in self.paths]
        self._append(b"-", old)
        self.paths.difference_update(old)

    def _append(self, sign: bytes, paths: List[str]) -> None:
        if not paths:
            return
        try:
            with open(self._file, "ab") as stream:
                stream.write(b"".join(sign + path_bytes(path) + b"\0" for path in paths))
        except OSError as error:
            raise explained(error, path_text(self._file)) from error

    def _compact(self) -> None:
        fresh = self._file + b".new"
        try:
            with open(fresh, "wb") as stream:
                stream.write(b"".join(b"+" + path_bytes(path) + b"\0" for path in sorted(self.paths)))
            os.replace(fresh, self._file)
        except OSError as error:
            raise explained(error, path_text(self._file)) from error


def _replay(file: bytes) -> Set[str]:
    paths: Set[str] = set()
    try:
        with open(file, "rb") as stream:
            records = stream.read().split(b"\0")
    except FileNotFoundError:
        return paths
    # What follows the last NUL is a record that a crash cut off; nothing was written for it yet.
    for record in records[:-1]:
        path = path_text(record[1:])
        if record[:1] == b"+":
            paths.add(path)
        else:
            paths.discard(path)
    return paths
