"""The plugin inside the project's own pytest: reports what is collected, the result of each test, and why it failed.

It writes one row per event to the agent's pipe. It does not change how tests run, but deselects those that are not in
the order. Bounded: whatever a test prints, a row stays small.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Dict, Generator, List, Optional, Set, Tuple

import pytest

from .. import rows
from ..failures import TEXT_LIMIT, cut
from ..module_origins import third_party
from ..record.recorder import start_recording
from ..rows import RowKind
from ..vital_files import loaded_files
from ..warm.preloaded_state import PreloadedState
from ..warm.prestart import EARLY, LATE, Gate
from .pytest_failure import PytestFailures
from .pytest_scopes import ScopePlugin
from .pytest_selection import SelectedFiles, TestFilter, TestSelection
from .xdist_workers import XdistWorkers

UNKNOWN_FILES = "*"
"""In the order of files: the position of all files that it does not name."""
ORDERING = ("randomly", "pytest_order", "pytest-order", "order", "ordering", "random-order", "dsession")
"""Plugins that impose an order of their own."""
CRASHED_WORKER = "???"
"""The phase in xdist's report of a test whose worker crashed."""


def main(order_file: str) -> int:
    """Run pytest in a fresh process as the order says; return pytest's exit code."""
    with open(order_file) as stream:
        order = json.load(stream)
    return run(order, rows.inherited_writer(order.get("running_test", "")), rows.inherited_fd(rows.STACKS))


def run(
    order: Dict[str, Any],
    writer: rows.RowWriter,
    stacks_fd: int,
    preloaded: Optional[PreloadedState] = None,
    gate: Optional[Gate] = None,
) -> int:
    """Run pytest in this process, which the zygote may have forked; with a gate, the session waits there for its order.

    Selected tests are never passed as arguments: those would determine the rootdir and the first conftest files, which
    must be the same as for all tests.
    """
    rows.dump_stacks_on_signal(stacks_fd)
    args = list(order["args"])
    sys.argv = [os.path.join(os.path.dirname(pytest.__file__), "__main__.py"), *args]
    reporter = PytestReporter(writer, order, preloaded, gate)
    recorder = start_recording(order["root"], reporter.send_record) if order["record"] else None
    plugins = [reporter] if recorder is None else [reporter, ScopePlugin(recorder, reporter.name)]
    code = int(pytest.main(args, plugins=plugins))
    reporter.exit_on_mismatch()  # the session may have ended before its collection
    if recorder is not None:
        recorder.stop()
    reporter.send_rest()
    return code


class PytestReporter(SelectedFiles):
    """`preloaded`: the state of the zygote that this process was forked from; None in a fresh process."""

    def __init__(
        self,
        writer: rows.RowWriter,
        order: Dict[str, Any],
        preloaded: Optional[PreloadedState] = None,
        gate: Optional[Gate] = None,
    ) -> None:
        self._rows = writer
        self.send = self._rows.send
        self._root = os.path.realpath(order["root"])
        self._failures = PytestFailures(order["root"])
        self._selection = TestSelection(order)
        self._plugins: Set[str] = set()
        self._apply(order)
        self._preloaded = preloaded
        self._unverified = preloaded
        """The same, until it is compared with the project."""
        self._gate = gate
        if gate is not None:
            gate.on_reached = self._await_order
        self._config: Any = None
        self._phases: Dict[str, _Phases] = {}
        self._has_workers = False

    def pytest_configure(self, config: Any) -> None:
        self._selection.configure(config)
        self._plugins = {name for name, plugin in config.pluginmanager.list_name_plugin() if plugin is not None}

    def name(self, nodeid: str) -> str:
        return self._selection.name(nodeid)

    def _apply(self, order: Dict[str, Any]) -> None:
        self._selection = TestSelection(order, self._selection.prefix)
        self._workers = XdistWorkers(order)
        self._first = TestFilter(order["first"])
        self._ranks = {file: rank for rank, file in enumerate(order["order"])}

    # -- prestart ----------------------------------------------------------------------------------

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_load_initial_conftests(self) -> Generator[None, Any, None]:
        """Wait before all other hooks: they begin to capture output, measure coverage and load the project's code."""
        if self._gate is not None and self._gate.point == EARLY:
            self._await_order()
        yield

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: Any) -> None:
        self._config = session.config
        if self._gate is not None and not self._gate.is_passed:
            if _has_session_timeout(session.config):
                self._gate.give_up("a limit for the whole session")
            if self._gate.point == LATE:
                self._await_order()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectstart(self, collector: Any) -> None:
        if self._gate is not None and not self._gate.is_passed:
            self._gate.about_to_read(str(getattr(collector, "path", None) or getattr(collector, "fspath", "")))

    def _await_order(self) -> None:
        assert self._gate is not None
        self._apply(self._gate.wait())
        if self._config is not None:
            _reset_start_time(self._config)

    # -- collection --------------------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: Any, items: List[Any]) -> None:
        self._selection.deselect(config, items)
        if self._ranks and not any(config.pluginmanager.hasplugin(name) for name in ORDERING):
            # Only whole files are moved: within a wave, the tests of a file may depend on each other.
            unknown = self._ranks.get(UNKNOWN_FILES, len(self._ranks))

            def rank(item: Any) -> Tuple[bool, int]:
                name = self.name(item.nodeid)
                return name not in self._first, self._ranks.get(name.partition("::")[0], unknown)

            items.sort(key=rank)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: Any) -> None:
        if self._gate is not None and not self._gate.is_passed:
            self._gate.give_up("no file to wait for was collected")
        self.exit_on_mismatch()
        self._rows.buffer(rows.VitalFilesRow(k=RowKind.VITAL, files=loaded_files()))
        # With xdist, the workers collect, and the next hook reports it.
        if not session.config.pluginmanager.hasplugin("dsession"):
            self._rows.announce([self.name(item.nodeid) for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: List[str]) -> None:
        self._unverified = None  # workers are fresh processes
        if not self._has_workers:  # every worker collects the same
            self._has_workers = True
            names = [self.name(test) for test in ids]
            self._rows.announce([test for test in names if test in self._selection])

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
            failure = self._failures.describe(report, name)
            self.send(rows.CollectionErrorRow(k=RowKind.COLLECTION_ERROR, test=name, failure=failure))

    # -- tests -------------------------------------------------------------------------------------

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._unverified = None
        self._rows.start(self.name(nodeid))

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
            name, outcome = self.name(report.nodeid), phases.outcome()
            row = rows.TestRow(k=RowKind.TEST, test=name, outcome=outcome, duration_s=phases.duration_s)
            if phases.failure is not None:
                row["failure"] = phases.failure
            if phases.attempt > 1:
                row["reruns"] = phases.attempt - 1
            self._rows.end(row)

    # -- the end -----------------------------------------------------------------------------------

    def exit_on_mismatch(self) -> None:
        """In a warm run, before its first test: exit if a fresh process might differ from this one."""
        unverified, self._unverified = self._unverified, None
        mismatch = unverified.find_mismatch(self._plugins) if unverified is not None else None
        if mismatch is not None:
            self.send(rows.ColdRow(k=RowKind.COLD, why=mismatch.why, avoid=mismatch.avoid))
            os._exit(0)

    def send_record(self, row: rows.Row) -> None:
        """Send what this process has touched, unless xdist's workers run the tests."""
        if not self._workers:
            self._rows.buffer(row)

    def send_rest(self) -> None:
        """Send what the tests of xdist's workers have touched, and the modules that the next run may find preloaded."""
        for row in self._workers.rows():
            self.send(row)
        found = third_party(self._preloaded.modules if self._preloaded is not None else frozenset(), self._root)
        if found:
            self._rows.buffer(rows.ModulesRow(k=RowKind.MODULES, names=found))
        self._rows.flush()

    def pytest_internalerror(self, excrepr: Any) -> None:
        self.send(rows.InternalErrorRow(k=RowKind.INTERNAL_ERROR, text=cut(str(excrepr), TEXT_LIMIT)))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: Any, exitstatus: Any) -> None:
        why = getattr(session, "shouldfail", False) or getattr(session, "shouldstop", False)
        self.send(rows.FinishRow(k=RowKind.FINISH, exit_code=int(exitstatus), withdrawn=str(why or "")))


class _Phases:
    """Collects setup, call and teardown of a test, until its outcome is known."""

    def __init__(self, attempt: int = 1) -> None:
        self.attempt = attempt
        self.duration_s = 0.0
        self.failure: Optional[rows.FailureRow] = None
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


def _has_session_timeout(config: Any) -> bool:
    """Return whether pytest-timeout limits the session: it computes the deadline when the session begins."""
    try:
        return bool(config.getoption("session_timeout", None) or config.getini("session_timeout"))
    except (ValueError, KeyError):
        return False  # no such option


def _reset_start_time(config: Any) -> None:
    """Make pytest report its duration from now on, not from the prestart of the session."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if isinstance(getattr(reporter, "_sessionstarttime", None), float):  # until pytest 8.3
        reporter._sessionstarttime = time.time()
    elif hasattr(reporter, "_session_start"):
        reporter._session_start = type(reporter._session_start)()
