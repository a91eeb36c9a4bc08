"""pytest-xdist: makes its workers load a plugin of ours, which deselects tests and records.

A worker is a fresh process that knows only the session's arguments. We prepend code to its source that loads this
module before any code of the project, by an environment variable that is restored before the project could see it.
Workers write what their tests touch to an unlinked file, which the session reads at its end. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import inspect
import json
import os
import platform
import tempfile
import textwrap
from os import getpid, write
from types import ModuleType
from typing import Any, Dict, Iterator, List, Optional

import pytest

from .. import FOLDER, LOADER
from ..record.recorder import start_recording
from ..rows import Row, UntrustedRow, encode_row, parse_row
from .pytest_scopes import ScopePlugin
from .pytest_selection import SelectedFiles, TestSelection

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
    from watchtest_agent.in_pytest import xdist_workers
    xdist_workers.start(order)
exec(compile(remote, name, 'exec'), globals())
"""
)


class XdistWorkers:
    """The session's side: the workers of one session; `order` is the session's own."""

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


VARIABLE = "PYTEST_PLUGINS"

_started: List[_XdistWorker] = []


def start(order: Dict[str, Any]) -> None:
    """Start recording before there is a session."""
    _started.append(_XdistWorker(order))


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any) -> None:
    for worker in _started:
        worker.register(early_config.pluginmanager)
    _started.clear()


class _XdistWorker(SelectedFiles):
    """The plugin in a worker."""

    def __init__(self, order: Dict[str, Any]) -> None:
        self._selection = TestSelection(order)
        self._base = order["base"]
        self._fd = os.open(order["record"], os.O_WRONLY | os.O_APPEND) if order["record"] else -1
        self._pid = getpid()
        platform.platform()  # fills its cache before we listen: xdist calls it, and it starts a program
        self._recorder = start_recording(order["root"], self._write) if self._fd >= 0 else None
        self._before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = ",".join(filter(None, [self._before, __name__]))

    def register(self, plugins: Any) -> None:
        if self._before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = self._before
        plugins.register(self, "watchtest-worker")
        if self._recorder is not None:
            plugins.register(ScopePlugin(self._recorder, self._selection.name), "watchtest-recording")

    def _write(self, row: Row) -> None:
        """Write a row in one call, so that rows of several workers do not mix. Each worker numbers its own code."""
        if getpid() != self._pid:
            return  # a fork of the test process writes nothing
        if "from" in row:
            row = dict(row, **{"from": row["from"] + self._base})
        elif "codes" in row:
            row = dict(row, codes=[number + self._base for number in row["codes"]])
        write(self._fd, encode_row(row))

    def pytest_configure(self, config: Any) -> None:
        self._selection.configure(config)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: Any, items: List[Any]) -> None:
        self._selection.deselect(config, items)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if self._recorder is not None:
            self._recorder.stop()
