"""The JSON report of Jest, which Vitest writes too, as results. Parses; starts nothing. All of it came from the box."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from watchtest.core.model import Execution, Failure, Location, Outcome, Result
from watchtest.runners.command_report import ResultCollector
from watchtest.runners.javascript import javascript_tools as javascript
from watchtest.runners.runner import Invocation, InvocationEnd
from watchtest.runners.untrusted import COLUMNS, inside, name, number, seconds, tables, text

OUTCOMES = {
    "passed": Outcome.PASSED,
    "failed": Outcome.FAILED,
    "skipped": Outcome.SKIPPED,
    "pending": Outcome.SKIPPED,
    "todo": Outcome.SKIPPED,
    "disabled": Outcome.SKIPPED,
}
PLACEHOLDER = "STACK_TRACE_ERROR"
"""What Vitest writes in place of the message when a test took too long; its text says it."""
EXITED = re.compile(r"process\.exit (?:called with|unexpectedly called with) \"?(\w+)\"?")
UNHANDLED = re.compile(r"Unhandled (?:Errors|Rejection|Error)")
DETAILS = "\n    Details:\n"
"""Ends Jest's advice on what might be wrong with a file that it cannot parse."""
HEADING = re.compile(r"^\s*● Test suite failed to run\s*$", re.MULTILINE)


class JestReader:
    """Of one run of Jest or Vitest. Nothing is known before the report is there, at its end."""

    def __init__(self, tool: str, invocation: Invocation, root: str) -> None:
        self._tool = tool
        self._invocation = invocation
        self._root = root
        self._output = ""

    def take(self, rows: list[dict[str, Any]]) -> tuple[frozenset[str], tuple[Result, ...]]:
        return frozenset(), ()

    def execution(self, end: InvocationEnd) -> Execution:
        collected = ResultCollector()
        self._output = text(end.output)
        report = _parsed(end.report)
        suites = report.get("testResults") if report else None
        if not isinstance(suites, list):
            return collected.execution(end, self._tool, reason=self._silence(end, collected), is_whole=False)
        for suite in tables(suites):
            self._suite(suite, collected)
        reason = ""
        if end.exit_code and not collected.has_red and UNHANDLED.search(self._output):
            reason = f"{self._tool} caught an error outside of any test"
        return collected.execution(end, self._tool, reason=reason)

    def _silence(self, end: InvocationEnd, collected: ResultCollector) -> str:
        """Without a report: a test that left the process is some_of by the stack that Jest prints."""
        found = EXITED.search(self._output)
        if found is None or end.stopped is not None:
            return f"{self._tool} ended with exit code {end.exit_code} and wrote no report"
        stack = javascript.frames(self._output[found.end() :], self._root, self._invocation.folder)
        for at, column in stack[:1]:
            message = f"process.exit({found[1]}) was called"
            collected.error(
                at.file, Failure("exited", message, at, column, crash=at, text=self._output[found.start() :])
            )
        return f"a test called process.exit({found[1]})"

    def _suite(self, suite: dict[str, Any], collected: ResultCollector) -> None:
        path = text(suite.get("name"))
        file = inside(path, self._root, self._invocation.folder) or name(path)
        results = [result for raw in tables(suite.get("assertionResults")) for result in self._results(file, raw)]
        has_failed = suite.get("status") == "failed"
        if has_failed and not any(result.outcome.is_red for result in results):
            # It was not imported, or a hook of it failed: what it skipped for that was not skipped by anybody's spec.
            collected.error(file, self._suite_failure(file, text(suite.get("message"))))
            results = [result for result in results if result.outcome is not Outcome.SKIPPED]
        for result in results:
            collected.promise(result.test)
            collected.add(result)

    def _results(self, file: str, raw: dict[str, Any]) -> Iterator[Result]:
        titles = raw.get("ancestorTitles")
        parts = [*(titles if isinstance(titles, list) else ()), raw.get("title")]
        test = f"{file}::{name(javascript.SEPARATOR.join(part for part in parts if isinstance(part, str)))}"
        status = raw.get("status")
        outcome = OUTCOMES.get(status) if isinstance(status, str) else None
        if outcome is None:
            return
        if outcome is Outcome.SKIPPED and not self._is_asked(file, test):
            return  # a filter left it out
        failure = self._failure(file, test, raw) if outcome.is_red else None
        yield Result(test, outcome, seconds(raw.get("duration"), 1000.0), failure)

    def _is_asked(self, file: str, test: str) -> bool:
        asked = self._invocation.tests
        return asked is None or test in asked or file in asked

    def _failure(self, file: str, test: str, raw: dict[str, Any]) -> Failure:
        messages = raw.get("failureMessages")
        said = text("\n".join(text(one) for one in messages[:20])) if isinstance(messages, list) else ""
        kind, message = javascript.split(said)
        own = javascript.frames(said, self._root, self._invocation.folder)
        where, column = next(((at, column) for at, column in own if at.file == file), (None, None))
        if where is None:
            where, column = _location(file, raw.get("location"))
        if message == PLACEHOLDER:
            kind, message = "timed out", self._spoken(test) or "it took too long"
        crash = own[0][0] if own else where
        return Failure(kind, message or "it failed without a message", where, column, crash=crash, text=said)

    def _spoken(self, test: str) -> str:
        """What the reporter for people says of a test, below `FAIL  file > suite > title`."""
        file, _, titles = test.partition("::")
        heading = re.escape(f"{self._inner(file)}{javascript.SEPARATOR}{titles}")
        found = re.search(rf"^\s*FAIL +{heading}\n(?:[A-Z]\w*: )?(.+)$", self._output, re.MULTILINE)
        return found[1].strip() if found else ""

    def _suite_failure(self, file: str, said: str) -> Failure:
        said = HEADING.sub("", said).strip() or self._spoken_of_suite(file)
        kind, message = javascript.split(said.rpartition(DETAILS)[2].strip())
        spoken = self._spoken_of_suite(file)
        own = javascript.frames(said, self._root, self._invocation.folder)
        named = javascript.complaint(said, self._root, self._invocation.folder)
        near = next((one for one in own if one[0].file == file), None) or next(iter(own), None)
        at = near or named or next(iter(javascript.frames(spoken, self._root, self._invocation.folder)), None)
        where, column = at or (Location(file, 1), None)
        return Failure(kind, message or "it could not be run", where, column, crash=where, text=spoken or said)

    def _spoken_of_suite(self, file: str) -> str:
        """The paragraph that begins with `FAIL  file`."""
        found = re.search(
            rf"^\s*FAIL +{re.escape(self._inner(file))}\b[^\n]*\n(.*?)(?=\n⎯|\n\s*FAIL |\Z)", self._output, re.S | re.M
        )
        return found[1].strip() if found else ""

    def _inner(self, file: str) -> str:
        return file.removeprefix(self._invocation.folder).lstrip("/")


def _location(file: str, raw: object) -> tuple[Location | None, int | None]:
    match raw:
        case {"line": line, "column": column} if (at := number(line)) is not None:
            return Location(file, at), number(column, COLUMNS)
        case _:
            return None, None


def _parsed(report: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(report) if report else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
