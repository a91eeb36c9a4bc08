"""What unittest says of its tests, as the rows that our pytest plugin writes. Runs nothing."""

from __future__ import annotations

import re
import unittest
from time import perf_counter
from typing import Any, Dict, List, Optional, Tuple

from ..rows import TEXT_LIMIT, Describer, Rows, cut
from .unittest_loader import Recording

AROUND_TESTS = re.compile(r"(?P<when>(?:setUp|tearDown)(?:Class|Module)) \((?P<scope>.*)\)")
UNEXPECTED = "Unexpected success: the test is marked as an expected failure and passes"


class Result(unittest.TextTestResult):
    """unittest's own, on the screen as ever; each word is also passed on."""

    watched_by: Telling

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self.watched_by.start(test)

    def stopTest(self, test: Any) -> None:
        super().stopTest(test)
        self.watched_by.stop(test)

    def addSuccess(self, test: Any) -> None:
        super().addSuccess(test)
        self.watched_by.note(test, "passed")

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        around = AROUND_TESTS.fullmatch(getattr(test, "description", None) or "")
        if around is not None:
            self.watched_by.skip_around(around.group("scope"))
        else:
            self.watched_by.note(getattr(test, "test_case", test), "skipped")

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        super().addExpectedFailure(test, err)
        self.watched_by.note(test, "xfailed")

    def addUnexpectedSuccess(self, test: Any) -> None:
        super().addUnexpectedSuccess(test)
        self.watched_by.fail_unexpectedly(test)

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self.watched_by.fail(test, err[1], self.failures[-1][1])

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        around = AROUND_TESTS.fullmatch(getattr(test, "description", None) or "")
        if around is not None:
            self.watched_by.fail_around(around.group("when"), around.group("scope"), err[1], self.errors[-1][1])
        else:
            self.watched_by.fail(test, err[1], self.errors[-1][1])

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            text = self._exc_info_to_string(err, test)  # type: ignore[attr-defined]
            self.watched_by.fail(test, err[1], text, subtest._subDescription() + " ")


class _Story:
    """One test, from its start until it can be said what became of it."""

    def __init__(self, name: str, file: str) -> None:
        self.name = name
        self.file = file
        self.began = perf_counter()
        self.outcome = ""
        self.failure: Optional[Dict[str, Any]] = None
        self.more = 0

    def row(self, duration_s: float) -> Dict[str, Any]:
        row: Dict[str, Any] = {"k": "test", "test": self.name, "outcome": self.outcome, "duration_s": duration_s}
        if self.failure is not None:
            more = " (and {} more)".format(self.more) if self.more else ""
            row["failure"] = dict(self.failure, message=self.failure["message"] + more)
        return row


class Telling:
    """From the words of a result to rows. Knows the tests that were promised, and forgets each when it is over."""

    def __init__(
        self, rows: Rows, describer: Describer, found: List[Tuple[Any, str, str]], recording: Recording
    ) -> None:
        self._rows = rows
        self._recording = recording
        self._describer = describer
        self._waiting: Dict[int, Tuple[Any, str, str]] = {id(test): (test, name, file) for test, name, file in found}
        self._known = {test.id(): (name, file) for test, name, file in found}
        """By unittest's own id, for a test that runs once more after it was over."""
        self._stories: Dict[int, _Story] = {}
        self._last: Dict[str, Tuple[str, str]] = {}
        """By class, and by module: the last test of it that ended."""
        self.has_tests = bool(found)

    def start(self, test: Any) -> None:
        story = self._story(test)
        if story is not None:
            self._recording.begin(story.name)
            story.began = perf_counter()
            self._rows.send({"k": "start", "test": story.name})

    def note(self, test: Any, outcome: str) -> None:
        story = self._story(test)
        if story is not None and story.outcome in ("", "passed"):
            story.outcome = outcome

    def fail(self, test: Any, error: BaseException, text: str, title: str = "") -> None:
        story = self._story(test)
        if story is None:
            return
        story.outcome = "failed"
        if story.failure is None:
            story.failure = self._describer.describe(error, story.file, text, title)
        else:
            story.more += 1
            story.failure["text"] = cut("{}\n{}".format(story.failure["text"], text), TEXT_LIMIT)

    def fail_unexpectedly(self, test: Any) -> None:
        story = self._story(test)
        if story is not None:
            story.outcome = "failed"
            story.failure = {"kind": "UnexpectedSuccess", "message": UNEXPECTED, "text": UNEXPECTED, "output": ""}
            code = getattr(getattr(test, getattr(test, "_testMethodName", ""), None), "__code__", None)
            if code is not None:
                story.failure.update(self._describer.place(code.co_filename, code.co_firstlineno))

    def stop(self, test: Any) -> None:
        story = self._stories.pop(id(test), None)
        self._waiting.pop(id(test), None)
        if story is None:
            return
        if story.outcome:  # else interrupted: what was promised and not reported has not passed
            self._tell(test, story)
        self._recording.end(story.name)

    def _tell(self, test: Any, story: _Story) -> None:
        for scope in (type(test).__module__, _name_of(type(test))):
            self._last[scope] = (story.name, story.file)
        self._rows.send(story.row(perf_counter() - story.began))

    # -- setUpClass, tearDownModule and the like ---------------------------------------------------

    def skip_around(self, scope: str) -> None:
        for name, _ in self._rest_of(scope):
            self._rows.send({"k": "test", "test": name, "outcome": "skipped", "duration_s": 0.0})

    def fail_around(self, when: str, scope: str, error: BaseException, text: str) -> None:
        """What fails before its tests is an error of all of them; what fails after them, of the last one."""
        last = [self._last[scope]] if scope in self._last else []
        for name, file in self._rest_of(scope) if when.startswith("setUp") else last:
            failure = self._describer.describe(error, file, text, when + ": ")
            self._rows.send({"k": "test", "test": name, "outcome": "error", "duration_s": 0.0, "failure": failure})

    def _rest_of(self, scope: str) -> List[Tuple[str, str]]:
        """The tests of a class or a module that will not run now."""
        rest = [
            (key, name, file)
            for key, (test, name, file) in self._waiting.items()
            if scope in (type(test).__module__, _name_of(type(test)))
        ]
        for key, _, _ in rest:
            del self._waiting[key]
        return [(name, file) for _, name, file in rest]

    def _story(self, test: Any) -> Optional[_Story]:
        """None for what is no test of the project's."""
        if id(test) not in self._stories:
            found = self._waiting.get(id(test))
            name_and_file = found[1:] if found is not None else self._known.get(_id_or_empty(test))
            if name_and_file is None:
                return None
            self._stories[id(test)] = _Story(*name_and_file)
        return self._stories[id(test)]


def _id_or_empty(test: Any) -> str:
    name = getattr(test, "id", None)
    return str(name()) if callable(name) else ""


def _name_of(cls: type) -> str:
    """As unittest names a class."""
    return "{}.{}".format(cls.__module__, cls.__qualname__)
