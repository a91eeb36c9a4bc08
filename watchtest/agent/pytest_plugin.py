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
from typing import Any, Dict, Generator, Iterable, Iterator, List, Optional, Tuple

import pytest

TEXT_LIMIT = 64 * 1024
OUTPUT_LIMIT = 64 * 1024
MESSAGE_LIMIT = 4 * 1024
IDS_A_LINE = 500


def main(order_file: str) -> int:
    """Run pytest as the order says; the exit code is pytest's own."""
    with open(order_file) as stream:
        order = json.load(stream)
    results_fd = _own_fd("WATCHTEST_RESULTS_FD")
    stacks_fd = _own_fd("WATCHTEST_STACKS_FD")
    if hasattr(signal, "SIGRTMIN"):
        faulthandler.register(signal.SIGRTMIN + 5, file=stacks_fd, all_threads=True)
    else:
        faulthandler.register(signal.SIGUSR2, file=stacks_fd, all_threads=True)
    tests = order["tests"]
    selected = None if tests is None else frozenset(tests)
    args = list(order["args"]) + _files_of(tests, order["root"])
    sys.argv = [os.path.join(os.path.dirname(pytest.__file__), "__main__.py"), *args]
    return int(pytest.main(args, plugins=[Reporter(results_fd, order["root"], selected)]))


def _own_fd(name: str) -> int:
    """A pipe the agent gave us; neither it nor its name goes on to what the tests start."""
    fd = int(os.environ.pop(name))
    os.set_inheritable(fd, False)
    return fd


def _files_of(tests: Optional[List[str]], root: str) -> List[str]:
    """The files of the selected tests, those that are still there; their other tests are deselected below."""
    if tests is None:
        return []
    files = sorted({test.partition("::")[0] for test in tests})
    return [file for file in files if os.path.exists(os.path.join(root, file))]


class Reporter:
    def __init__(self, results_fd: int, root: str, selected: Optional[frozenset]) -> None:  # type: ignore[type-arg]
        self._fd = results_fd
        self._pid = os.getpid()
        self._root = os.path.realpath(root)
        self._selected = selected
        self._phases: Dict[str, _Phases] = {}
        self._has_workers = False

    # -- collection --------------------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: Any, items: List[Any]) -> None:
        if self._selected is None:
            return
        left_out = [item for item in items if item.nodeid not in self._selected]
        if left_out:
            items[:] = [item for item in items if item.nodeid in self._selected]
            config.hook.pytest_deselected(items=left_out)

    def pytest_collection_finish(self, session: Any) -> None:
        # With xdist the workers collect, and the hook below tells.
        if not session.config.pluginmanager.hasplugin("dsession"):
            self._promise([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: List[str]) -> None:
        if not self._has_workers:  # every worker collects the same
            self._has_workers = True
            self._promise([test for test in ids if self._selected is None or test in self._selected])

    def _promise(self, tests: List[str]) -> None:
        for start in range(0, len(tests), IDS_A_LINE):
            self._send({"k": "collected", "tests": tests[start : start + IDS_A_LINE]})
        self._send({"k": "collection_end"})

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
            failure = self._describe_report(report, report.nodeid)
            self._send({"k": "collection_error", "test": report.nodeid or ".", "failure": failure})

    # -- tests -------------------------------------------------------------------------------------

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._send({"k": "start", "test": nodeid})

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
            phases.failure = self._describe_report(report, report.nodeid)
        phases.add(report)
        if report.when == "teardown":
            del self._phases[report.nodeid]
            row = {"k": "test", "test": report.nodeid, "outcome": phases.outcome(), "duration_s": phases.duration_s}
            if phases.failure is not None:
                row["failure"] = phases.failure
            self._send(row)

    # -- the end -----------------------------------------------------------------------------------

    def pytest_internalerror(self, excrepr: Any) -> None:
        self._send({"k": "internal_error", "text": _cut(str(excrepr), TEXT_LIMIT)})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: Any, exitstatus: Any) -> None:
        withdrawn = getattr(session, "shouldfail", False) or getattr(session, "shouldstop", False)
        self._send({"k": "finish", "exit_code": int(exitstatus), "withdrawn": str(withdrawn or "")})

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
        failure["output"] = _cut("\n".join(_sections(report.sections)), OUTPUT_LIMIT)
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

    def _send(self, row: Dict[str, Any]) -> None:
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


def _entries(longrepr: Any) -> Iterable[Any]:
    for element in getattr(longrepr, "chain", None) or [(getattr(longrepr, "reprtraceback", None),)]:
        for entry in getattr(element[0], "reprentries", ()):
            yield entry


def _sections(sections: Iterable[Tuple[str, str]]) -> Iterator[str]:
    for title, content in sections:
        yield "--- {} ---".format(title)
        yield _cut(content, OUTPUT_LIMIT)


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
