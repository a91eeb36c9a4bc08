"""Collects the results of one invocation, and checks at its end that exit code and results agree."""

from __future__ import annotations

from typing import Any

from watchtest.core.model import Execution, Failure, Outcome, Result, StopReason
from watchtest.errors import RunnerError
from watchtest.runners.runner import Invocation, InvocationEnd
from watchtest.runners.untrusted import first_line

TEST_LIMIT = 1_000_000
NOT_FOUND = 127
NO_TESTS = 5
FAILED = 1
DISAGREED = 70
"""Replaces an exit code that would have another meaning for us."""


class ResultCollector:
    """The promised tests, their results and the collection errors. A pass never replaces a failure."""

    def __init__(self) -> None:
        self.promised: set[str] = set()
        self.results: dict[str, Result] = {}
        self.errors: dict[str, Result] = {}
        self._new_promises: set[str] = set()
        self._new_results: list[Result] = []

    def promise(self, test: str) -> None:
        """Note that a test will run."""
        if test and test not in self.promised and len(self.promised) < TEST_LIMIT:
            self.promised.add(test)
            self._new_promises.add(test)

    def add(self, result: Result) -> None:
        """Add a result, unless the test was not promised, or this is a pass of a test that has failed."""
        before = self.results.get(result.test)
        if result.test in self.promised and not (before and before.outcome.is_red and not result.outcome.is_red):
            self.results[result.test] = result
            self._new_results.append(result)

    def take_new(self) -> tuple[frozenset[str], tuple[Result, ...]]:
        """Return the tests promised and the results added since the last call."""
        new = frozenset(self._new_promises), tuple(self._new_results)
        self._new_promises, self._new_results = set(), []
        return new

    def error(self, what: str, failure: Failure) -> None:
        """Note that a file or package could not be collected; only the first reason is kept."""
        if what and what not in self.errors and len(self.errors) < TEST_LIMIT:
            self.errors[what] = Result(what, Outcome.ERROR, 0.0, failure)

    @property
    def has_red(self) -> bool:
        return bool(self.errors) or any(result.outcome.is_red for result in self.results.values())

    def execution(
        self,
        end: InvocationEnd,
        tool: str,
        *,
        reason: str = "",
        is_whole: bool = True,
        stopped: StopReason | None = None,
        current: str = "",
        withdrawn: str = "",
    ) -> Execution:
        """Return everything collected. `is_whole` says that all tests were reported and finished.

        The box's own reason takes precedence over `reason`. Raises RunnerError if the tool is not in the box.
        """
        if end.exit_code == NOT_FOUND and not self.promised and not self.errors and end.stopped is None:
            raise RunnerError(
                f"{tool} cannot be run in the box: {first_line(end.output) or 'it is not installed'}",
                hint=f"Use an image that has {tool} (box.image), or install it in the box (box.setup).",
            )
        stopped = StopReason(end.stopped) if end.stopped is not None else stopped
        code = self._normalized(end.exit_code, is_stopped=stopped is not None)
        if end.exit_code and not self.has_red and stopped is None:
            reason = reason or f"{tool} exited with {end.exit_code} and reported no failure"
        return Execution(
            exit_code=code,
            promised=frozenset(self.promised),
            results=dict(self.results),
            collection_errors=tuple(self.errors.values()),
            stopped=stopped,
            reason=end.reason or reason,
            raw_output="\n".join(part for part in (end.output, end.stacks) if part),
            duration_s=end.duration_s,
            withdrawn=withdrawn,
            has_collected=is_whole,
            collects_first=False,
            has_finished=is_whole and code is not None,
            current=end.current or current,
            stacks=end.stacks,
            runner=tool,
        )

    def _normalized(self, code: int | None, *, is_stopped: bool) -> int | None:
        """Return an exit code that agrees with the results."""
        if code == 0:
            return code if self.promised or self.errors else NO_TESTS
        if code is not None and self.has_red:
            return FAILED
        return DISAGREED if code in (FAILED, NO_TESTS) and not is_stopped else code


class ToolReader:
    """The base of readers. One that reads only a report at the end gets no rows."""

    def __init__(self, tool: str, invocation: Invocation, root: str) -> None:
        self._tool = tool
        self._invocation = invocation
        self._folder = invocation.folder
        self._root = root
        self._collected = ResultCollector()

    def take(self, rows: list[dict[str, Any]]) -> tuple[frozenset[str], tuple[Result, ...]]:
        for row in rows:
            self._take_row(row)
        return self._collected.take_new()

    def _take_row(self, row: dict[str, Any]) -> None:
        """Read one row."""
