"""Workers of pytest-xdist, as seen by the session that they work for: they run what it was asked for, and record it.

A worker is a fresh process that knows the session's arguments and nothing of us. Before it begins it is told what to
load; what its tests touch it writes to a file without a name, which the session reads when all is over.
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

NUMBERS = 1_000_000_000
"""Each worker has so many numbers of its own for the code that it names."""

_SOURCE = (
    """\
import importlib.util, json, os, sys
folder, order, name, remote = json.loads({words!r})
if os.path.isdir(folder):  # not on another machine
"""
    + textwrap.indent(LOADER, "    ")
    + """\
    from watchtest_agent.in_pytest import xdist_plugin
    xdist_plugin.begin(order)
exec(compile(remote, name, 'exec'), globals())
"""
)


class Workers:
    """Of one session. `order`: what it has to obey itself."""

    def __init__(self, order: Dict[str, Any]) -> None:
        self._order = order
        self._count = 0
        self._file: Optional[int] = None

    def __bool__(self) -> bool:
        """Whether there are any."""
        return self._count > 0

    def source(self, remote: Any) -> Any:
        """What the next worker has to execute, in place of xdist's own module, which it executes in the end."""
        if not isinstance(remote, ModuleType):
            return remote
        self._count += 1
        words = {name: self._order[name] for name in ("tests", "collects_all", "root")}
        words.update(record=self._rows() if self._order["record"] else "", base=self._count * NUMBERS)
        told = [FOLDER, words, inspect.getsourcefile(remote) or "", inspect.getsource(remote)]
        return _SOURCE.format(words=json.dumps(told))

    def _rows(self) -> str:
        """The path of the file for rows; "" where there can be none."""
        if self._file is None:
            handle, path = tempfile.mkstemp(prefix="watchtest-")
            os.unlink(path)
            self._file = handle
        path = "/proc/{}/fd/{}".format(os.getpid(), self._file)
        return path if os.path.exists(path) else ""

    def rows(self) -> Iterator[Dict[str, Any]]:
        """What all of them wrote; a line that one could not end is left out."""
        if self._file is None:
            return
        with os.fdopen(self._file, "rb") as stream:
            self._file = None
            stream.seek(0)
            for line in stream:
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if isinstance(row, dict):
                    yield row
