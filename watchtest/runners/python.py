"""Describes runs of pytest and unittest, and reads the rows that our plugin and loader report from the box."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from watchtest.agent.rows import RowKind, UntrustedRow
from watchtest.core.model import Execution, Failure, Location, Outcome, Result, StopReason
from watchtest.core.text import FAILURE_TEXT_LIMIT, ID_LIMIT, NAME_LIMIT
from watchtest.core.verdict import file_of
from watchtest.runners.runner import InvocationEnd, ToolRunner
from watchtest.runners.untrusted import COLUMNS, number, seconds


@dataclass(frozen=True, slots=True)
class PythonRunner(ToolRunner):
    """Describes a run of a Python tool, which the agent starts."""

    def claims(self, test: str) -> bool:
        return file_of(test).endswith(".py") and (not self.folder or test.startswith(f"{self.folder}/"))


@dataclass(frozen=True, slots=True)
class PytestRunner(PythonRunner):
    """The agent adds its own plugin."""

    name: str = "pytest"
    workers: int = 1
    """If more than one, the tests run in parallel with pytest-xdist."""

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("-n", str(self.workers), *self.args) if self.workers > 1 else self.args


@dataclass(frozen=True, slots=True)
class UnittestRunner(PythonRunner):
    """The agent's loader does what `python -m unittest discover` does."""

    name: str = "unittest"


class PytestReader:
    """Reads the rows of one run. Our loader for unittest reports the same rows."""

    def __init__(self, tool: str = "pytest") -> None:
        self._tool = tool
        self._begin()

    def _begin(self) -> None:
        self.promised: set[str] = set()
        self.results: dict[str, Result] = {}
        self._collection_errors: dict[str, Result] = {}
        self._withdrawn = ""
        self._has_collected = False
        self._has_finished = False
        self._internal_error = ""
        self._running: dict[str, None] = {}

    @property
    def current(self) -> str:
        """The test that began last and has not ended."""
        return next(reversed(self._running), "")

    def take(self, rows: list[UntrustedRow]) -> tuple[frozenset[str], tuple[Result, ...]]:
        """Read rows. Returns the promised tests, all at once when the collection ends, and the new results."""
        promised: frozenset[str] = frozenset()
        results: list[Result] = []
        for row in rows:
            match row.get("k"):
                case RowKind.COLLECTED:
                    tests = row.get("tests")
                    self.promised.update(filter(_is_id, tests)) if isinstance(tests, list) else None
                case RowKind.START:
                    if _is_id(test := row.get("test")):
                        self._running[str(test)] = None
                case RowKind.TEST:
                    self._running.pop(str(row.get("test")), None)
                    results += [result for result in _results(row) if self._counts(result)]
                case RowKind.COLLECTION_END:
                    self._has_collected = True
                    promised = frozenset(self.promised)
                case RowKind.COLLECTION_ERROR:
                    self._collection_errors |= {result.test: result for result in _results({**row, "outcome": "error"})}
                case RowKind.RESTART:
                    # A warm process differs from a fresh one, so the run starts again in a fresh process.
                    self._begin()
                case RowKind.INTERNAL_ERROR:
                    self._internal_error = _text(row.get("text"))
                case RowKind.FINISH:
                    self._has_finished = True
                    self._withdrawn = _text(row.get("withdrawn"))
        self.results |= {result.test: result for result in results}
        return promised, tuple(results)

    def _counts(self, result: Result) -> bool:
        """Accept a pass only for a promised test that has not failed; accept a failure of any test."""
        if result.outcome.is_red:
            return True
        before = self.results.get(result.test)
        return result.test in self.promised and not (before is not None and before.outcome.is_red)

    def execution(self, end: InvocationEnd) -> Execution:
        reason = end.reason
        if self._internal_error and not reason:
            reason = f"{self._tool} had an internal error"
        return Execution(
            exit_code=end.exit_code,
            promised=frozenset(self.promised),
            results=dict(self.results),
            collection_errors=tuple(self._collection_errors.values()),
            stopped=StopReason(end.stopped) if end.stopped is not None else None,
            reason=reason,
            raw_output="\n".join(part for part in (end.output, self._internal_error, end.stacks) if part),
            duration_s=end.duration_s,
            current=end.current,
            stacks=end.stacks,
            withdrawn=self._withdrawn,
            has_collected=self._has_collected,
            has_finished=self._has_collected and self._has_finished,
        )


def _is_id(test: object) -> bool:
    return isinstance(test, str) and 0 < len(test) <= ID_LIMIT


def _results(row: Mapping[str, Any]) -> list[Result]:
    """Return one result, or none if the row is invalid: the test then has not passed."""
    test, outcome, duration = row.get("test"), row.get("outcome"), row.get("duration_s", 0.0)
    if not isinstance(test, str) or not _is_id(test) or not isinstance(outcome, str) or outcome not in set(Outcome):
        return []
    failure = _failure(row.get("failure"))
    if Outcome(outcome).is_red and failure is None:
        failure = Failure(kind="unknown", message="no reason was reported")
    return [Result(test, Outcome(outcome), seconds(duration), failure, _count(row.get("reruns")))]


def _count(raw: object) -> int:
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and 0 < raw < 1_000_000 else 0


def _failure(raw: object) -> Failure | None:
    if not isinstance(raw, dict):
        return None
    return Failure(
        kind=_text(raw.get("kind"))[:NAME_LIMIT] or "Error",
        message=_text(raw.get("message")),
        where=_location(raw),
        column=number(raw.get("column"), COLUMNS),
        source_line=_text(raw.get("source_line")) or None,
        crash=_location(raw.get("crash")),
        text=_text(raw.get("text")),
        output=_text(raw.get("output")),
        function=_text(raw.get("function"))[:NAME_LIMIT],
    )


def _location(raw: object) -> Location | None:
    match raw:
        case {"file": str(file), "line": int(line)} if number(line):
            return Location(file[:ID_LIMIT], line)
        case _:
            return None


def _text(raw: object) -> str:
    return raw[:FAILURE_TEXT_LIMIT] if isinstance(raw, str) else ""
