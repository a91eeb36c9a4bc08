"""The session's side of pytest-xdist workers: makes them load our plugin, and reads what they recorded.

A worker is a fresh process that knows only the session's arguments. We prepend code to its source that loads our
plugin. Workers write what their tests touch to an unlinked file, which the session reads at its end.
"""

from __future__ import annotations

import inspect
import json
import os
import tempfile
import textwrap
from types import ModuleType
from typing import Any, Dict, Iterator, Optional

from .. import FOLDER, LOADER
from ..rows import UntrustedRow, parse_row

NUMBERS_PER_WORKER = 1_000_000_000
"""How many numbers each worker has for its code objects."""

_SOURCE = (
    """\
import importlib.util, json, os, sys
folder, order, name, remote = json.loads({arguments!r})
if os.path.isdir(folder):  # not on another machine
"""
    + textwrap.indent(LOADER, "    ")
    + """\
    from watchtest_agent.in_pytest import xdist_plugin
    xdist_plugin.start(order)
exec(compile(remote, name, 'exec'), globals())
"""
)


class XdistWorkers:
    """The workers of one session; `order` is the session's own."""

    def __init__(self, order: Dict[str, Any]) -> None:
        self._order = order
        self._count = 0
        self._file: Optional[int] = None

    def __bool__(self) -> bool:
        """Return whether there are any workers."""
        return self._count > 0

    def source(self, remote: Any) -> Any:
        """Return the source for the next worker: it loads our plugin, then executes xdist's own module."""
        if not isinstance(remote, ModuleType):
            return remote
        self._count += 1
        order = {name: self._order[name] for name in ("tests", "collects_all", "root")}
        order.update(record=self._rows_file() if self._order["record"] else "", base=self._count * NUMBERS_PER_WORKER)
        arguments = [FOLDER, order, inspect.getsourcefile(remote) or "", inspect.getsource(remote)]
        return _SOURCE.format(arguments=json.dumps(arguments))

    def _rows_file(self) -> str:
        """Return the path of the file for rows; "" without /proc."""
        if self._file is None:
            handle, path = tempfile.mkstemp(prefix="watchtest-")
            os.unlink(path)
            self._file = handle
        path = "/proc/{}/fd/{}".format(os.getpid(), self._file)
        return path if os.path.exists(path) else ""

    def rows(self) -> Iterator[UntrustedRow]:
        """Yield the rows of all workers, without unfinished ones."""
        if self._file is None:
            return
        with os.fdopen(self._file, "rb") as stream:
            self._file = None
            stream.seek(0)
            for line in stream:
                row = parse_row(line)
                if row is not None:
                    yield row
