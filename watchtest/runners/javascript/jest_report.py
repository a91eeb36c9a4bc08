"""Reads the JSON report of Jest, which Vitest writes as well, and finds locations in JavaScript stacks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from watchtest.core.model import Execution, Failure, Location, Outcome, Result
from watchtest.runners.command_report import ToolReader
from watchtest.runners.runner import Invocation, InvocationEnd
from watchtest.runners.untrusted import COLUMNS, inside, location, name, number, seconds, tables, text

OUTCOMES = {
    "passed": Outcome.PASSED,
    "failed": Outcome.FAILED,
    "skipped": Outcome.SKIPPED,
    "pending": Outcome.SKIPPED,
    "todo": Outcome.SKIPPED,
    "disabled": Outcome.SKIPPED,
}
SEPARATOR = " > "
PLACEHOLDER = "STACK_TRACE_ERROR"
"""Vitest writes this instead of a message when a test times out; its text output contains the message."""
EXITED = re.compile(r"process\.exit (?:called with|unexpectedly called with) \"?(\w+)\"?")
UNHANDLED = re.compile(r"Unhandled (?:Errors|Rejection|Error)")
DETAILS = "\n    Details:\n"
"""The end of Jest's advice about a file that it cannot parse."""
HEADING = re.compile(r"^\s*● Test suite failed to run\s*$", re.MULTILINE)


class JestReader(ToolReader):
    """Reads the report of one run of Jest or Vitest."""

    def __init__(self, tool: str, invocation: Invocation, root: str) -> None:
        super().__init__(tool, invocation, root)
        self._output = ""

    def execution(self, end: InvocationEnd) -> Execution:
        self._output = text(end.output)
        report = _parsed(end.report)
        suites = report.get("testResults") if report else None
        if not isinstance(suites, list):
            return self._collected.execution(end, self._tool, reason=self._missing_report(end), is_whole=False)
        for suite in tables(suites):
            self._add_suite(suite)
        reason = ""
        if end.exit_code and not self._collected.has_red and UNHANDLED.search(self._output):
            reason = f"{self._tool} caught an error outside of any test"
        return self._collected.execution(end, self._tool, reason=reason)

    def _missing_report(self, end: InvocationEnd) -> str:
        """Return why there is no report. If a test ended the process, Jest prints its stack."""
        found = EXITED.search(self._output)
        if found is None or end.stopped is not None:
            return f"{self._tool} ended with exit code {end.exit_code} and wrote no report"
        stack = frames(self._output[found.end() :], self._root, self._folder)
        for at, column in stack[:1]:
            message = f"process.exit({found[1]}) was called"
            failure = Failure("exited", message, at, column, crash=at, text=self._output[found.start() :])
            self._collected.error(at.file, failure)
        return f"a test called process.exit({found[1]})"

    def _add_suite(self, suite: dict[str, Any]) -> None:
        path = text(suite.get("name"))
        file = inside(path, self._root, self._folder) or name(path)
        results = [result for raw in tables(suite.get("assertionResults")) for result in self._results(file, raw)]
        has_failed = suite.get("status") == "failed"
        if has_failed and not any(result.outcome.is_red for result in results):
            # It could not be imported, or a hook failed; the tests skipped for that reason are not really skipped.
            self._collected.error(file, self._suite_failure(file, text(suite.get("message"))))
            results = [result for result in results if result.outcome is not Outcome.SKIPPED]
        for result in results:
            self._collected.promise(result.test)
            self._collected.add(result)

    def _results(self, file: str, raw: dict[str, Any]) -> Iterator[Result]:
        titles = raw.get("ancestorTitles")
        parts = [*(titles if isinstance(titles, list) else ()), raw.get("title")]
        test = f"{file}::{name(SEPARATOR.join(part for part in parts if isinstance(part, str)))}"
        status = raw.get("status")
        outcome = OUTCOMES.get(status) if isinstance(status, str) else None
        if outcome is None:
            return
        if outcome is Outcome.SKIPPED and not self._is_requested(file, test):
            return  # the filter excluded it
        failure = self._failure(file, test, raw) if outcome.is_red else None
        yield Result(test, outcome, seconds(raw.get("duration"), 1000.0), failure)

    def _is_requested(self, file: str, test: str) -> bool:
        tests = self._invocation.tests
        return tests is None or test in tests or file in tests

    def _failure(self, file: str, test: str, raw: dict[str, Any]) -> Failure:
        messages = raw.get("failureMessages")
        error = text("\n".join(map(text, messages[:20]))) if isinstance(messages, list) else ""
        kind, message = split_error(error)
        own = frames(error, self._root, self._folder)
        where, column = next(((at, column) for at, column in own if at.file == file), (None, None))
        if where is None:
            where, column = _location(file, raw.get("location"))
        if message == PLACEHOLDER:
            kind, message = "timed out", self._printed_message(test) or "it took too long"
        crash = own[0][0] if own else where
        return Failure(kind, message or "it failed without a message", where, column, crash=crash, text=error)

    def _printed_message(self, test: str) -> str:
        """Return the message of a test from the text output, below `FAIL  file > suite > title`."""
        file, _, titles = test.partition("::")
        heading = re.escape(f"{self._inner(file)}{SEPARATOR}{titles}")
        found = re.search(rf"^\s*FAIL +{heading}\n(?:[A-Z]\w*: )?(.+)$", self._output, re.MULTILINE)
        return found[1].strip() if found else ""

    def _suite_failure(self, file: str, reported: str) -> Failure:
        printed = self._printed_suite(file)
        error = HEADING.sub("", reported).strip() or printed
        kind, message = split_error(error.rpartition(DETAILS)[2].strip())
        own = frames(error, self._root, self._folder)
        near = next((frame for frame in own if frame[0].file == file), None) or next(iter(own), None)
        parser = parser_error(error, self._root, self._folder)
        at = near or parser or next(iter(frames(printed, self._root, self._folder)), None)
        where, column = at or (Location(file, 1), None)
        return Failure(kind, message or "it could not be run", where, column, crash=where, text=printed or error)

    def _printed_suite(self, file: str) -> str:
        """Return the paragraph of the text output that starts with `FAIL  file`."""
        found = re.search(
            rf"^\s*FAIL +{re.escape(self._inner(file))}\b[^\n]*\n(.*?)(?=\n⎯|\n\s*FAIL |\Z)", self._output, re.S | re.M
        )
        return found[1].strip() if found else ""

    def _inner(self, file: str) -> str:
        return file.removeprefix(self._folder).lstrip("/")


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


MARK = "\x01"
"""Replaces the path of the workspace while a text is parsed, because that path may contain any character."""
FRAME = re.compile(
    rf"^\s*(?:at|\u276f) (?:[^{MARK}\n]*{MARK}(?P<own>[^{MARK}\n]+?)|"
    rf"(?:[^{MARK}\n]*[( ])?(?P<near>[^\s():/{MARK}][^():\s{MARK}]*))"
    r":(?P<line>\d{1,9}):(?P<column>\d{1,9})\)?\s*$",
    re.MULTILINE,
)
PARSER_ERROR = re.compile(
    rf"(?:{MARK}(?P<own>[^:\n{MARK}]+)|(?:^|[\s\[(])(?P<near>[^\s:()\[\]/{MARK}][^\s:()\[\]{MARK}]*\.[cm]?[jt]sx?))"
    r":(?P<line>\d{1,9}):(?P<column>\d{1,9})"
)
BABEL = re.compile(rf"{MARK}(?P<own>[^:\n{MARK}]+)(?P<near>(?!))?: .*\((?P<line>\d{{1,9}}):(?P<column>\d{{1,9}})\)")
NOT_OWN = "node_modules/"
STACK = re.compile(r"\n\s+(?:at|\u276f) |\n\s*(?:> *)?\d+ ?\| ")
"""Where a message ends: at its stack, or at the excerpt of the source."""
KIND = re.compile(r"^(?:Uncaught )?([A-Z]\w*(?:Error|Exception)|Error)(?: \[[^\]]*\])?(?:: |$)")


def frames(stack: str, root: str, folder: str) -> list[tuple[Location, int | None]]:
    """Return the locations in the workspace's own files, deepest first, each with its column."""
    found = [_frame_location(frame, folder) for frame in FRAME.finditer(_marked(stack, root))]
    return [(at, number(column, COLUMNS)) for at, column in found if at is not None]


def parser_error(message: str, root: str, folder: str) -> tuple[Location, int | None] | None:
    """Return the location that a parser reports, outside of any stack. Babel counts columns from 0."""
    for expression, first in ((PARSER_ERROR, 1), (BABEL, 0)):
        for found in expression.finditer(_marked(message, root)):
            at, column = _frame_location(found, folder)
            if at is not None:
                return at, number(int(column) + 1 - first, COLUMNS)
    return None


def _marked(message: str, root: str) -> str:
    base = root.rstrip("/") + "/"
    clean = message.replace(MARK, "")
    return clean.replace(f"file://{quote(base)}", MARK).replace(f"file://{base}", MARK).replace(base, MARK)


def _frame_location(found: re.Match[str], folder: str) -> tuple[Location | None, str]:
    path, base = (found["own"], "") if found["own"] else (found["near"], folder)
    return (None if NOT_OWN in path else location(path, found["line"], "", base)), found["column"]


def split_error(error: str) -> tuple[str, str]:
    """Return the kind and the message of an error, without its stack."""
    message = STACK.split(error, maxsplit=1)[0].strip()
    kind = KIND.match(message)
    if kind is None:
        return "Error", message
    return kind[1], message[kind.end() :].strip() or message
