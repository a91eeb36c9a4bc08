"""The plugin in a worker of pytest-xdist: deselects tests and records.

Loaded before any code of the project, by an environment variable that is restored before the project could see it.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import os
import platform
from os import getpid, write
from typing import Any, Dict, List

import pytest

from ..record.recorder import start_recording
from ..rows import Row, encode_row
from .pytest_scopes import ScopePlugin
from .pytest_selection import TestSelection

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


class _XdistWorker:
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

    # -- hooks -------------------------------------------------------------------------------------

    def pytest_configure(self, config: Any) -> None:
        self._selection.configure(config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: Any) -> None:
        self._selection.restrict(session)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: Any, items: List[Any]) -> None:
        self._selection.deselect(config, items)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if self._recorder is not None:
            self._recorder.stop()
