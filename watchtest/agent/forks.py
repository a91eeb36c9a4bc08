"""What forked children of a process touch: each writes it down at once, for nobody knows how it will end.

One file without a name, shared by all of them; the parent reads what is new in it whenever a scope ends. A child that
outlives its scope counts for the next one, too.
"""

from __future__ import annotations

import os
import tempfile
from types import CodeType
from typing import Callable, Optional

from .scopes import Scopes

GoOn = Callable[[Callable[[CodeType], None]], None]


class Forks:
    def __init__(self, scopes: Scopes, go_on: GoOn) -> None:
        self._scopes = scopes
        self._go_on = go_on
        self._file: Optional[int] = None
        self._read = 0

    def start(self) -> None:
        self._scopes.gather = self.gather
        os.register_at_fork(before=self._before, after_in_child=self._in_child)

    def _before(self) -> None:
        if self._file is None:
            try:
                handle, name = tempfile.mkstemp(prefix="watchtest-")
                os.unlink(name)
                self._file = os.dup(handle)
                os.close(handle)
            except OSError:
                self._scopes.top.opaque.add("forks")  # type: ignore[attr-defined]

    def _in_child(self) -> None:
        file = self._file
        if file is None:
            return
        own = self._scopes.own

        def write(code: CodeType) -> None:
            row = "{}\t{}\t{}\n".format(code.co_firstlineno, code.co_name, own(code.co_filename))
            os.lseek(file, 0, os.SEEK_END)
            os.write(file, row.encode("utf-8", "surrogateescape"))

        self._go_on(write)

    def gather(self) -> None:
        """Take over what children have written since the last time."""
        if self._file is None:
            return
        data = os.pread(self._file, 16 * 1024 * 1024, self._read)
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode("utf-8", "surrogateescape").splitlines():
            number, _, rest = line.partition("\t")
            name, _, path = rest.partition("\t")
            if number.isdigit() and path:
                self._scopes.add_place(path, int(number), name)
