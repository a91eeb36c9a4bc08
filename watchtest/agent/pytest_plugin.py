"""Our eyes inside the project's own pytest: what was collected, what became of each test, and why.

Takes reports in-process and writes one JSON line an event to the pipe the agent gave. Changes nothing about how the
tests run, but leaves out those that were not asked for. Bounded: whatever a test prints, a line stays small.
"""

from __future__ import annotations

import faulthandler
import json
import linecache
import os
import signal
import sys
import time
from typing import Any, Dict, FrozenSet, Generator, Iterable, Iterator, List, Optional, Protocol, Set, Tuple

import pytest

from .asked import Asked, Selected
from .modules import third_party
from .parking import EARLY, LATE, Gate
from .recorder import Recorder
from .recording import Recording
from .testrows import function_of
from .workers import Workers

TEXT_LIMIT = 64 * 1024
OUTPUT_LIMIT = 60 * 1024
TITLE_LIMIT = 200
MESSAGE_LIMIT = 4 * 1024
IDS_A_LINE = 500
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
    return run(order, _own_fd("WATCHTEST_RESULTS_FD"), _own_fd("WATCHTEST_STACKS_FD"))


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
    number = signal.SIGRTMIN + 5 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
    faulthandler.register(number, file=stacks_fd, all_threads=True)
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


def _own_fd(name: str) -> int:
    """A pipe the agent gave us; neither it nor its name goes on to what the tests start."""
    fd = int(os.environ.pop(name))
    os.set_inheritable(fd, False)
    return fd


class Held(Protocol):
    """What a process that others are forked from knows of itself."""

    modules: FrozenSet[str]

    def doubt(self, plugins: Set[str]) -> Optional[Tuple[str, List[str]]]: ...


class Reporter:
    """`held`: of a process that was forked from one with modules in it; None in a fresh one."""

    def __init__(
        self, results_fd: int, order: Dict[str, Any], held: Optional[Held] = None, gate: Optional[Gate] = None
    ) -> None:
        self._fd = results_fd
        self._pid = os.getpid()
        self._root = os.path.realpath(order["root"])
        self._asked = Asked(order)
        self._plugins: Set[str] = set()
        self._obey(order)
        self._held = held
        self._held_unsure = held
        """The same, until it is known that it may be used."""
        self._gate = gate
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
            self._obey(self._gate.wait())
        yield

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: Any) -> None:
        if self._gate is not None and self._gate.point == LATE:
            if _has_deadline(session.config):
                self._gate.leave("a limit for the whole session")
            self._obey(self._gate.wait())
            _begin_to_count(session.config)
        self._asked.restrict(session)

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
        self.tell_doubt()
        # With xdist the workers collect, and the hook below tells.
        if not session.config.pluginmanager.hasplugin("dsession"):
            self._promise([self.name(item.nodeid) for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: List[str]) -> None:
        self._held_unsure = None  # workers are fresh processes
        if not self._has_workers:  # every worker collects the same
            self._has_workers = True
            names = [self.name(test) for test in ids]
            self._promise([test for test in names if test in self._asked])

    @pytest.hookimpl(hookwrapper=True, optionalhook=True)
    def pytest_xdist_getremotemodule(self) -> Generator[None, Any, None]:
        outcome = yield
        if outcome.excinfo is None:
            outcome.force_result(self._workers.source(outcome.get_result()))

    def _promise(self, tests: List[str]) -> None:
        for start in range(0, len(tests), IDS_A_LINE):
            self.send({"k": "collected", "tests": tests[start : start + IDS_A_LINE]})
        self.send({"k": "collection_end"})

    @pytest.hookimpl(hookwrapper=True)
    def pytest_make_collect_report(self, collector: Any) -> Generator[None, Any, None]:
        outcome = yield
        if outcome.excinfo is None:
            report = outcome.get_result()
            call = getattr(report, "call", None)
            if report.failed and call is not None and call.excinfo is not None:
                # pytest wraps what an import raised, and renders it without places.
                error = call.excinfo.value
                is_wrapped = isinstance(error, collector.CollectError) and error.__cause__ is not None
                report.watchtest_places = self._places_or_none(error.__cause__ if is_wrapped else error, collector)
                if is_wrapped:
                    report.watchtest_message = _one_message(error.__cause__)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            name = self.name(report.nodeid) if report.nodeid else "."
            self.send({"k": "collection_error", "test": name, "failure": self._describe_report(report, name)})

    # -- tests -------------------------------------------------------------------------------------

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._held_unsure = None
        self.send({"k": "start", "test": self.name(nodeid)})

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Generator[None, Any, None]:
        outcome = yield
        if call.excinfo is not None:
            outcome.get_result().watchtest_places = self._places_or_none(call.excinfo.value, item)

    def pytest_runtest_logreport(self, report: Any) -> None:
        phases = self._phases.setdefault(report.nodeid, _Phases())
        if report.outcome == "rerun":  # pytest-rerunfailures: this attempt does not count
            self._phases[report.nodeid] = _Phases(attempt=phases.attempt + 1)
            return
        if report.failed and phases.failure is None:
            phases.failure = self._describe_report(report, self.name(report.nodeid))
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
            self.send(row)

    def tell_modules(self) -> None:
        """What the next run may find imported already."""
        found = third_party(self._held.modules if self._held is not None else frozenset(), self._root)
        if found:
            self.send({"k": "modules", "names": found})

    def pytest_internalerror(self, excrepr: Any) -> None:
        self.send({"k": "internal_error", "text": _cut(str(excrepr), TEXT_LIMIT)})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: Any, exitstatus: Any) -> None:
        withdrawn = getattr(session, "shouldfail", False) or getattr(session, "shouldstop", False)
        self.send({"k": "finish", "exit_code": int(exitstatus), "withdrawn": str(withdrawn or "")})

    # -- why a test failed -------------------------------------------------------------------------

    def _describe_report(self, report: Any, nodeid: str) -> Dict[str, Any]:
        crash = getattr(report.longrepr, "reprcrash", None)
        places = getattr(report, "watchtest_places", None) or self._places_of_text(report, nodeid)
        text = _cut(report.longreprtext, TEXT_LIMIT)
        message = getattr(report, "watchtest_message", None) or (
            crash.message if crash is not None else _last_line(text)
        )
        failure = dict(places)
        failure["message"] = _cut(message, MESSAGE_LIMIT)
        failure.setdefault("kind", _kind_of(failure["message"]))
        failure["text"] = text
        failure["output"] = "\n".join(_sections(report.sections))
        return failure

    def _places_or_none(self, error: Any, node: Any) -> Dict[str, Any]:
        try:
            return self._places(error, str(getattr(node, "path", None) or node.fspath))
        except Exception:  # noqa: BLE001  a strange traceback is no reason to break the user's session
            return {}

    def _places(self, error: Any, test_file: str) -> Dict[str, Any]:
        """From the traceback itself: the deepest frame in the test's file, and the deepest in the workspace."""
        test_file = os.path.realpath(test_file)
        frames = []
        trace = error.__traceback__
        while trace is not None:
            file = os.path.realpath(trace.tb_frame.f_code.co_filename)
            frames.append((file, trace.tb_lineno, trace))
            trace = trace.tb_next
        own = [frame for frame in frames if self._is_own(frame[0])]
        if isinstance(error, SyntaxError) and error.filename:
            file = os.path.realpath(error.filename)
            if self._is_own(file):
                own.append((file, error.lineno or 1, None))
        in_test = [frame for frame in own if frame[0] == test_file]
        places: Dict[str, Any] = {"kind": type(error).__name__}
        where = (in_test or own)[-1] if in_test or own else None
        if where is not None:
            places.update(self._place(where[0], where[1]), column=_column(where[2]))
        if own:
            places["crash"] = {"file": self._relative(own[-1][0]), "line": own[-1][1]}
            places["function"] = function_of(own[-1][2])
        return places

    def _places_of_text(self, report: Any, nodeid: str) -> Dict[str, Any]:
        """From the rendered report: all there is for collection errors and for tests of xdist's workers."""
        locations = [entry.reprfileloc for entry in _entries(report.longrepr) if getattr(entry, "reprfileloc", None)]
        frames = [(os.path.realpath(os.path.join(self._root, str(spot.path))), spot.lineno) for spot in locations]
        crash = getattr(report.longrepr, "reprcrash", None)
        if crash is not None:
            frames.append((os.path.realpath(str(crash.path)), crash.lineno))
        own = [frame for frame in frames if self._is_own(frame[0])]
        test_file = os.path.realpath(os.path.join(self._root, nodeid.partition("::")[0]))
        in_test = [frame for frame in own if frame[0] == test_file]
        if not own:
            return self._place(test_file, 1) if os.path.isfile(test_file) else {}
        places = self._place(*(in_test or own)[-1])
        places["crash"] = {"file": self._relative(own[-1][0]), "line": own[-1][1]}
        return places

    def _place(self, file: str, line: int) -> Dict[str, Any]:
        source = linecache.getline(file, line).strip()
        return {"file": self._relative(file), "line": line, "source_line": _cut(source, 400)}

    def _is_own(self, file: str) -> bool:
        return file.startswith(self._root + os.sep) and os.sep + "site-packages" + os.sep not in file

    def _relative(self, file: str) -> str:
        return os.path.relpath(file, self._root).replace(os.sep, "/")

    def send(self, row: Dict[str, Any]) -> None:
        if os.getpid() != self._pid:
            return  # a fork of the test process has no say
        data = memoryview(json.dumps(row, separators=(",", ":")).encode("ascii") + b"\n")
        while data:
            data = data[os.write(self._fd, data) :]


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


def _entries(longrepr: Any) -> Iterable[Any]:
    for element in getattr(longrepr, "chain", None) or [(getattr(longrepr, "reprtraceback", None),)]:
        for entry in getattr(element[0], "reprentries", ()):
            yield entry


def _sections(sections: List[Tuple[str, str]]) -> Iterator[str]:
    """They share the room: were it cut again, the count of what was left out would be lost."""
    for title, content in sections:
        yield "--- {} ---".format(_cut(title, TITLE_LIMIT))
        yield _cut(content, OUTPUT_LIMIT // len(sections))


def _column(trace: Any) -> Optional[int]:
    """1-based, where this Python knows it (3.11 on)."""
    positions = getattr(trace.tb_frame.f_code, "co_positions", None) if trace is not None else None
    if positions is None:
        return None
    for index, (line, _, column, _) in enumerate(positions()):
        if index == trace.tb_lasti // 2:
            return column + 1 if column is not None and line == trace.tb_lineno else None
    return None


def _cut(text: str, limit: int) -> str:
    """Head and tail, with the count of what was left out between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return "{}\n[... {} characters left out ...]\n{}".format(text[:half], len(text) - 2 * half, text[-half:])


def _one_message(error: BaseException) -> str:
    return "{}: {}".format(type(error).__name__, error)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _kind_of(message: str) -> str:
    head = message.partition(":")[0].strip()
    return head if head.replace(".", "").replace("_", "").isalnum() else "Error"
