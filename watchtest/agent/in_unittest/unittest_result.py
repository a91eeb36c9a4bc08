"""Turns what unittest reports about its tests into the same rows as our pytest plugin writes. Runs nothing."""

from __future__ import annotations

import re
import unittest
from time import perf_counter
from typing import Any, Dict, List, Optional, Tuple

from .. import rows
from ..failures import TEXT_LIMIT, FailureDescriber, cut
from ..rows import RowKind
from .unittest_loader import ScopeRecorder

AROUND_TESTS = re.compile(r"(?P<when>(?:setUp|tearDown)(?:Class|Module)) \((?P<scope>.*)\)")
UNEXPECTED = "Unexpected success: the test is marked as an expected failure and passes"


class ReportingResult(unittest.TextTestResult):
    """unittest's own result, with the usual output; every call is also passed on to a ResultReporter."""

    reported_by: ResultReporter

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self.reported_by.start(test)

    def stopTest(self, test: Any) -> None:
        super().stopTest(test)
        self.reported_by.stop(test)

    def addSuccess(self, test: Any) -> None:
        super().addSuccess(test)
        self.reported_by.note(test, "passed")

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        around = AROUND_TESTS.fullmatch(getattr(test, "description", None) or "")
        if around is not None:
            self.reported_by.skip_around(around.group("scope"))
        else:
            self.reported_by.note(getattr(test, "test_case", test), "skipped")

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        super().addExpectedFailure(test, err)
        self.reported_by.note(test, "xfailed")

    def addUnexpectedSuccess(self, test: Any) -> None:
        super().addUnexpectedSuccess(test)
        self.reported_by.fail_unexpectedly(test)

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self.reported_by.fail(test, err[1], self.failures[-1][1])

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        around = AROUND_TESTS.fullmatch(getattr(test, "description", None) or "")
        if around is not None:
            self.reported_by.fail_around(around.group("when"), around.group("scope"), err[1], self.errors[-1][1])
        else:
            self.reported_by.fail(test, err[1], self.errors[-1][1])

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            text = self._exc_info_to_string(err, test)  # type: ignore[attr-defined]
            self.reported_by.fail(test, err[1], text, subtest._subDescription() + " ")


class _TestProgress:
    """A running test, until its outcome is known."""

    def __init__(self, name: str, file: str) -> None:
        self.name = name
        self.file = file
        self.began = perf_counter()
        self.outcome = ""
        self.failure: Optional[rows.FailureRow] = None
        self.more_failures = 0

    def row(self, duration_s: float) -> rows.TestRow:
        row = rows.TestRow(k=RowKind.TEST, test=self.name, outcome=self.outcome, duration_s=duration_s)
        if self.failure is not None:
            if self.more_failures:
                self.failure["message"] += " (and {} more)".format(self.more_failures)
            row["failure"] = self.failure
        return row


class ResultReporter:
    """Writes the rows of a run. Knows the announced tests, and drops each when it is over."""

    def __init__(
        self,
        writer: rows.RowWriter,
        describer: FailureDescriber,
        found: List[Tuple[Any, str, str]],
        recorder: ScopeRecorder,
    ) -> None:
        self._writer = writer
        self._recorder = recorder
        self._describer = describer
        self._waiting: Dict[int, Tuple[Any, str, str]] = {id(test): (test, name, file) for test, name, file in found}
        self._known = {test.id(): (name, file) for test, name, file in found}
        """By unittest's own id, for a test that runs again after it was over."""
        self._running: Dict[int, _TestProgress] = {}
        self._last: Dict[str, Tuple[str, str]] = {}
        """By class and by module: the last of its tests that ended."""
        self.has_tests = bool(found)

    def start(self, test: Any) -> None:
        progress = self._progress(test)
        if progress is not None:
            self._recorder.begin(progress.name)
            progress.began = perf_counter()
            self._writer.start(progress.name)

    def note(self, test: Any, outcome: str) -> None:
        progress = self._progress(test)
        if progress is not None and progress.outcome in ("", "passed"):
            progress.outcome = outcome

    def fail(self, test: Any, error: BaseException, text: str, title: str = "") -> None:
        progress = self._progress(test)
        if progress is None:
            return
        progress.outcome = "failed"
        if progress.failure is None:
            progress.failure = self._describer.describe(error, progress.file, text, title)
        else:
            progress.more_failures += 1
            progress.failure["text"] = cut("{}\n{}".format(progress.failure["text"], text), TEXT_LIMIT)

    def fail_unexpectedly(self, test: Any) -> None:
        progress = self._progress(test)
        if progress is not None:
            progress.outcome = "failed"
            progress.failure = {"kind": "UnexpectedSuccess", "message": UNEXPECTED, "text": UNEXPECTED, "output": ""}
            code = getattr(getattr(test, getattr(test, "_testMethodName", ""), None), "__code__", None)
            if code is not None:
                progress.failure.update(self._describer.location(code.co_filename, code.co_firstlineno))

    def stop(self, test: Any) -> None:
        progress = self._running.pop(id(test), None)
        self._waiting.pop(id(test), None)
        if progress is None:
            return
        if progress.outcome:  # otherwise it was interrupted, and an announced test without a result has not passed
            for scope in (type(test).__module__, _name_of(type(test))):
                self._last[scope] = (progress.name, progress.file)
            self._writer.end(progress.row(perf_counter() - progress.began))
        self._recorder.end(progress.name)

    def skip_around(self, scope: str) -> None:
        for name, _ in self._rest_of(scope):
            self._writer.send(rows.TestRow(k=RowKind.TEST, test=name, outcome="skipped", duration_s=0.0))

    def fail_around(self, when: str, scope: str, error: BaseException, text: str) -> None:
        """Report a failed fixture: one before the tests is an error of all of them, one after them of the last."""
        last = [self._last[scope]] if scope in self._last else []
        for name, file in self._rest_of(scope) if when.startswith("setUp") else last:
            failure = self._describer.describe(error, file, text, when + ": ")
            self._writer.send(rows.TestRow(k=RowKind.TEST, test=name, outcome="error", duration_s=0.0, failure=failure))

    def _rest_of(self, scope: str) -> List[Tuple[str, str]]:
        """Return and drop the tests of a class or a module that will not run."""
        rest = [
            (key, name, file)
            for key, (test, name, file) in self._waiting.items()
            if scope in (type(test).__module__, _name_of(type(test)))
        ]
        for key, _, _ in rest:
            del self._waiting[key]
        return [(name, file) for _, name, file in rest]

    def _progress(self, test: Any) -> Optional[_TestProgress]:
        """Return the progress of a test; None if it is not a test of the project."""
        if id(test) not in self._running:
            found = self._waiting.get(id(test))
            name_and_file = found[1:] if found is not None else self._known.get(_id_or_empty(test))
            if name_and_file is None:
                return None
            self._running[id(test)] = _TestProgress(*name_and_file)
        return self._running[id(test)]


def _id_or_empty(test: Any) -> str:
    name = getattr(test, "id", None)
    return str(name()) if callable(name) else ""


def _name_of(cls: type) -> str:
    """Return the name that unittest gives a class."""
    return "{}.{}".format(cls.__module__, cls.__qualname__)
