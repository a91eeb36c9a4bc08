"""Our eyes in a worker of pytest-xdist: it leaves out what was not asked for, and records. PYTEST_DONT_REWRITE

Loaded before anything of the project is, by way of a variable that nobody else gets to see.
"""

from __future__ import annotations

import os
import platform
from os import getpid, write
from typing import Any, Dict, List, Optional

import pytest

from ..record.recorder import Recorder
from ..rows import ENCODE
from .pytest_scopes import Recording
from .pytest_selection import Asked

VARIABLE = "PYTEST_PLUGINS"

_begun: List[_Worker] = []


def begin(order: Dict[str, Any]) -> None:
    """Before there is a session."""
    _begun.append(_Worker(order))


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any) -> None:
    for worker in _begun:
        worker.join(early_config.pluginmanager)
    _begun.clear()


class _Worker:
    def __init__(self, order: Dict[str, Any]) -> None:
        self._asked = Asked(order)
        self._base = order["base"]
        self._fd = os.open(order["record"], os.O_WRONLY | os.O_APPEND) if order["record"] else -1
        self._pid = getpid()
        self._recording = self._begun_recording(order["root"]) if self._fd >= 0 else None
        self._before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = ",".join(filter(None, [self._before, __name__]))

    def _begun_recording(self, root: str) -> Optional[Recording]:
        platform.platform()  # xdist will ask for it: that starts a program, and is kept
        recorder = Recorder(root, self._write)
        return Recording(recorder, self._write, self._asked.name) if recorder.start() else None

    def join(self, plugins: Any) -> None:
        if self._before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = self._before
        plugins.register(self, "watchtest-worker")
        if self._recording is not None:
            plugins.register(self._recording, "watchtest-recording")

    def _write(self, row: Dict[str, Any]) -> None:
        """A line at once, so that those of several workers do not mix. Code is numbered apart from that of others."""
        if getpid() != self._pid:
            return  # a fork of the test process has no say
        if "from" in row:
            row["from"] += self._base
        elif "codes" in row:
            row["codes"] = [number + self._base for number in row["codes"]]
        write(self._fd, ENCODE(row).encode("ascii") + b"\n")

    # -- hooks -------------------------------------------------------------------------------------

    def pytest_configure(self, config: Any) -> None:
        self._asked.configure(config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: Any) -> None:
        self._asked.restrict(session)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: Any, items: List[Any]) -> None:
        self._asked.leave_out(config, items)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if self._recording is not None:
            self._recording.close()
