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


class FinalReader:
    """The base of readers that get no rows and read a report at the end."""

    def __init__(self, tool: str, invocation: Invocation, root: str) -> None:
        self._tool = tool
        self._invocation = invocation
        self._root = root

    def take(self, rows: list[dict[str, Any]]) -> tuple[frozenset[str], tuple[Result, ...]]:
        return frozenset(), ()


class ResultCollector:
    """The promised tests, their results and the collection errors. A pass never replaces a failure."""

    def __init__(self) -> None:
        self.promised: set[str] = set()
        self.results: dict[str, Result] = {}
        self.errors: dict[str, Result] = {}

    def promise(self, test: str) -> bool:
        """Note that a test will run. Returns whether that is new."""
        if not test or test in self.promised or len(self.promised) >= TEST_LIMIT:
            return False
        self.promised.add(test)
        return True

    def add(self, result: Result) -> bool:
        """Add a result. Returns False, and ignores it, if the test was not promised or has already failed."""
        before = self.results.get(result.test)
        if result.test not in self.promised or (before and before.outcome.is_red and not result.outcome.is_red):
            return False
        self.results[result.test] = result
        return True

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
        is_stopped = end.stopped is not None or stopped is not None
        code = end.exit_code
        if code not in (None, 0) and self.has_red:
            code = FAILED
        elif code == 0 and not self.promised and not self.errors:
            code = NO_TESTS
        elif code not in (None, 0) and not is_stopped:
            reason = reason or f"{tool} exited with {code} and reported no failure"
            code = DISAGREED if code in (FAILED, NO_TESTS) else code
        return Execution(
            exit_code=code,
            promised=frozenset(self.promised),
            results=dict(self.results),
            collection_errors=tuple(self.errors.values()),
            stopped=StopReason(end.stopped) if end.stopped is not None else stopped,
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
