"""Our eyes inside the project's own pytest: what was collected, what became of each test, and why.

Takes reports in-process and writes one JSON line an event to the pipe the agent gave. Changes nothing about how the
tests run, but leaves out those that were not asked for. Bounded: whatever a test prints, a line stays small.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Dict, FrozenSet, Generator, List, Optional, Protocol, Set, Tuple

import pytest

from ..module_origins import third_party
from ..record.recorder import Recorder
from ..rows import TEXT_LIMIT, Rows, cut, listen_for_stacks, own_fd
from ..warm.prestart import EARLY, LATE, Gate
from .pytest_failure import Failures
from .pytest_scopes import Recording
from .pytest_selection import Asked, Selected
from .xdist_workers import Workers

UNKNOWN_FILES = "*"
"""In an order: where the files go that are not in it."""
ORDERING = ("randomly", "pytest_order", "pytest-order", "order", "ordering", "random-order", "dsession")
"""Plugins that have an order of their own in mind."""
CRASHED_WORKER = "???"
"""Instead of a phase: what xdist says of a test in which a worker ended."""


def main(order_file: str) -> int:
    """Run pytest as the order says, in a process of its own; the exit code is pytest's own."""
    with open(order_file) as stream:
        order = json.load(stream)
    return run(order, own_fd("WATCHTEST_RESULTS_FD"), own_fd("WATCHTEST_STACKS_FD"))


def run(
    order: Dict[str, Any],
    results_fd: int,
    stacks_fd: int,
    held: Optional[Held] = None,
    gate: Optional[Gate] = None,
) -> int:
    """The same in a process that holds modules already; with a gate, the session waits there for the rest of its order.

    The tests that are asked for are never arguments: those decide which folder is the root and which conftest files
    come first, and that shall be as it is for all tests.
    """
    listen_for_stacks(stacks_fd)
    args = list(order["args"])
    sys.argv = [os.path.join(os.path.dirname(pytest.__file__), "__main__.py"), *args]
    reporter = Reporter(results_fd, order, held, gate)
    recording = _recording(order["root"], reporter) if order["record"] else None
    code = int(pytest.main(args, plugins=[reporter] if recording is None else [reporter, recording]))
    reporter.tell_doubt()  # a session may have ended before it had collected
    if recording is not None:
        recording.close()
    reporter.tell_of_workers()
    reporter.tell_modules()
    return code


def _recording(root: str, reporter: Reporter) -> Optional[Recording]:
    recorder = Recorder(root, reporter.send_record)
    return Recording(recorder, reporter.send_record, reporter.name) if recorder.start() else None


class Held(Protocol):
    """What a process that others are forked from knows of itself."""

    modules: FrozenSet[str]

    def doubt(self, plugins: Set[str]) -> Optional[Tuple[str, List[str]]]: ...


class Reporter:
    """`held`: of a process that was forked from one with modules in it; None in a fresh one."""

    def __init__(
        self, results_fd: int, order: Dict[str, Any], held: Optional[Held] = None, gate: Optional[Gate] = None
    ) -> None:
        self._rows = Rows(results_fd)
        self.send = self._rows.send
        self._root = os.path.realpath(order["root"])
        self._failures = Failures(order["root"])
        self._asked = Asked(order)
        self._plugins: Set[str] = set()
        self._obey(order)
        self._held = held
        self._held_unsure = held
        """The same, until it is known that it may be used."""
        self._gate = gate
        if gate is not None:
            gate.on_awaited = self._await_order
        self._config: Any = None
        self._phases: Dict[str, _Phases] = {}
        self._has_workers = False

    def pytest_configure(self, config: Any) -> None:
        self._asked.configure(config)
        self._plugins = {name for name, plugin in config.pluginmanager.list_name_plugin() if plugin is not None}

    def name(self, nodeid: str) -> str:
        return self._asked.name(nodeid)

    def _obey(self, order: Dict[str, Any]) -> None:
        self._asked = Asked(order, self._asked.prefix)
        self._workers = Workers(order)
        self._first = Selected(order["first"])
        self._ranks = {file: rank for rank, file in enumerate(order["order"])}

    # -- ahead of time -----------------------------------------------------------------------------

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_load_initial_conftests(self) -> Generator[None, Any, None]:
        """Around all others: in there, output is captured from, coverage measured, the project's code loaded."""
        if self._gate is not None and self._gate.point == EARLY:
            self._await_order()
        yield

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: Any) -> None:
        self._config = session.config
        if self._gate is not None and not self._gate.is_passed:
            if _has_deadline(session.config):
                self._gate.leave("a limit for the whole session")
            if self._gate.point == LATE:
                self._await_order()
        self._asked.restrict(session)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectstart(self, collector: Any) -> None:
        if self._gate is not None and not self._gate.is_passed:
            self._gate.approach(str(getattr(collector, "path", None) or getattr(collector, "fspath", "")))

    def _await_order(self) -> None:
        assert self._gate is not None
        self._obey(self._gate.wait())
        if self._config is not None:
            _begin_to_count(self._config)

    # -- collection --------------------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: Any, items: List[Any]) -> None:
        self._asked.leave_out(config, items)
        if self._ranks and not any(config.pluginmanager.hasplugin(name) for name in ORDERING):
            # Whole files are moved: what a file's tests owe to one another stays as it is, within a wave.
            unknown = self._ranks.get(UNKNOWN_FILES, len(self._ranks))

            def rank(item: Any) -> Tuple[bool, int]:
                name = self.name(item.nodeid)
                return name not in self._first, self._ranks.get(name.partition("::")[0], unknown)

            items.sort(key=rank)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: Any) -> None:
        if self._gate is not None and not self._gate.is_passed:
            self._gate.leave("nothing that it could wait for")
        self.tell_doubt()
        # With xdist the workers collect, and the hook below tells.
        if not session.config.pluginmanager.hasplugin("dsession"):
            self._rows.promise([self.name(item.nodeid) for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: List[str]) -> None:
        self._held_unsure = None  # workers are fresh processes
        if not self._has_workers:  # every worker collects the same
            self._has_workers = True
            names = [self.name(test) for test in ids]
            self._rows.promise([test for test in names if test in self._asked])

    @pytest.hookimpl(hookwrapper=True, optionalhook=True)
    def pytest_xdist_getremotemodule(self) -> Generator[None, Any, None]:
        outcome = yield
        if outcome.excinfo is None:
            outcome.force_result(self._workers.source(outcome.get_result()))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_make_collect_report(self, collector: Any) -> Generator[None, Any, None]:
        outcome = yield
        if outcome.excinfo is None:
            self._failures.note_collection(outcome.get_result(), collector)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            name = self.name(report.nodeid) if report.nodeid else "."
            self.send({"k": "collection_error", "test": name, "failure": self._failures.describe(report, name)})

    # -- tests -------------------------------------------------------------------------------------

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._held_unsure = None
        self.send({"k": "start", "test": self.name(nodeid)})

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Generator[None, Any, None]:
        outcome = yield
        if call.excinfo is not None:
            self._failures.note(outcome.get_result(), call.excinfo.value, item)

    def pytest_runtest_logreport(self, report: Any) -> None:
        phases = self._phases.setdefault(report.nodeid, _Phases())
        if report.outcome == "rerun":  # pytest-rerunfailures: this attempt does not count
            self._phases[report.nodeid] = _Phases(attempt=phases.attempt + 1)
            return
        if report.failed and phases.failure is None:
            phases.failure = self._failures.describe(report, self.name(report.nodeid))
        phases.add(report)
        if report.when in ("teardown", CRASHED_WORKER):
            del self._phases[report.nodeid]
            row = {
                "k": "test",
                "test": self.name(report.nodeid),
                "outcome": phases.outcome(),
                "duration_s": phases.duration_s,
            }
            if phases.failure is not None:
                row["failure"] = phases.failure
            if phases.attempt > 1:
                row["reruns"] = phases.attempt - 1
            self.send(row)

    # -- the end -----------------------------------------------------------------------------------

    def tell_doubt(self) -> None:
        """In a warm run, before its first test: end it if a fresh process might not be what this one is."""
        held, self._held_unsure = self._held_unsure, None
        doubt = held.doubt(self._plugins) if held is not None else None
        if doubt is not None:
            self.send({"k": "cold", "why": doubt[0], "avoid": doubt[1]})
            os._exit(0)

    def tell_of_workers(self) -> None:
        """What their tests have touched."""
        for row in self._workers.rows():
            self.send(row)

    def send_record(self, row: Dict[str, Any]) -> None:
        """Of this process, if it is the one that runs the tests: who only starts workers touches what no test does."""
        if not self._workers:
            self._rows.keep(row)

    def tell_modules(self) -> None:
        """What the next run may find imported already."""
        found = third_party(self._held.modules if self._held is not None else frozenset(), self._root)
        if found:
            self._rows.keep({"k": "modules", "names": found})
        self._rows.flush()

    def pytest_internalerror(self, excrepr: Any) -> None:
        self.send({"k": "internal_error", "text": cut(str(excrepr), TEXT_LIMIT)})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: Any, exitstatus: Any) -> None:
        withdrawn = getattr(session, "shouldfail", False) or getattr(session, "shouldstop", False)
        self.send({"k": "finish", "exit_code": int(exitstatus), "withdrawn": str(withdrawn or "")})


class _Phases:
    """Setup, call and teardown of one test, until it can be said what became of it."""

    def __init__(self, attempt: int = 1) -> None:
        self.attempt = attempt
        self.duration_s = 0.0
        self.failure: Optional[Dict[str, Any]] = None
        self._reports: List[Tuple[str, str, bool]] = []

    def add(self, report: Any) -> None:
        self.duration_s += getattr(report, "duration", 0.0)
        self._reports.append((report.when, report.outcome, hasattr(report, "wasxfail")))

    def outcome(self) -> str:
        failed_in = [when for when, outcome, _ in self._reports if outcome == "failed"]
        if "call" in failed_in:
            return "failed"
        if failed_in:
            return "error"
        skipped = [is_expected for _, outcome, is_expected in self._reports if outcome == "skipped"]
        if skipped:
            return "xfailed" if any(skipped) else "skipped"
        is_xpass = any(when == "call" and is_expected for when, _, is_expected in self._reports)
        return "xpassed" if is_xpass else "passed"


def _has_deadline(config: Any) -> bool:
    """pytest-timeout decides when a session begins at what time it has to end."""
    try:
        return bool(config.getoption("session_timeout", None) or config.getini("session_timeout"))
    except (ValueError, KeyError):
        return False  # no such option


def _begin_to_count(config: Any) -> None:
    """What pytest will say of the time it took begins now, not when the session was begun ahead."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if isinstance(getattr(reporter, "_sessionstarttime", None), float):  # until pytest 8.3
        reporter._sessionstarttime = time.time()
    elif hasattr(reporter, "_session_start"):
        reporter._session_start = type(reporter._session_start)()
