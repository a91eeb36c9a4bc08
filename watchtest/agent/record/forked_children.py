"""What forked children of a process touch: each writes it down at once, for nobody knows how it will end.

One file without a name, shared by all of them; the parent reads what is new in it whenever a scope ends. A child that
outlives its scope counts for the next one, too.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from os import fstat, pread, write
from typing import Any, Callable, List, Optional, Set, Tuple

from .scopes import CODE, SETS, Scopes

OUT_OF_THE_WAY = 100
"""File numbers from here on: children like to close the low ones and to use them again."""
READ_SIZE = 16 * 1024 * 1024
ENCODE, DECODE = json.JSONEncoder().encode, json.JSONDecoder().decode


class Forks:
    """`go_on` makes whoever listens tell `scopes` in a child as well."""

    def __init__(self, scopes: Scopes, go_on: Callable[[], None]) -> None:
        self._scopes = scopes
        self._go_on = go_on
        self._file: Optional[int] = None
        self._identity: Tuple[int, int] = (0, 0)
        self._read = 0

    def start(self) -> None:
        os.register_at_fork(before=self._before, after_in_child=self._in_child)

    def _before(self) -> None:
        if self._file is None:
            try:
                self._file = _nameless()
                self._identity = _identity(self._file)
            except OSError:
                self._scopes.touch("opaque", "forks")

    def _in_child(self) -> None:
        file, identity = self._file, self._identity
        if file is None:
            return
        written: Set[str] = set()

        def write_down(row: List[Any]) -> None:
            text = ENCODE(row)
            if text in written:
                return
            try:
                if _identity(file) == identity:
                    write(file, text.encode("ascii") + b"\n")
                    written.add(text)
            except OSError:
                pass  # closed by the child: it does not want to be heard

        self._scopes.become_child(write_down)
        self._go_on()

    def gather(self) -> None:
        """Take over what children have written since the last time."""
        if self._file is None:
            return
        data = pread(self._file, READ_SIZE, self._read)
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode("ascii").splitlines():
            kind, *words = DECODE(line)
            if kind == CODE:
                self._scopes.add_place(*words)
            elif kind in SETS:
                self._scopes.touch(kind, words[0])


def _nameless() -> int:
    handle, name = tempfile.mkstemp(prefix="watchtest-")
    try:
        appending = os.open(name, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        try:
            return fcntl.fcntl(appending, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
        finally:
            os.close(appending)
    finally:
        os.close(handle)
        os.unlink(name)


def _identity(file: int) -> Tuple[int, int]:
    status = fstat(file)
    return status.st_dev, status.st_ino
