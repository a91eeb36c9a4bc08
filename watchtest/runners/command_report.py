"""What one invocation has said so far, and how its end is to be read: exit code and results must agree."""

from __future__ import annotations

from watchtest.core.model import Execution, Failure, Outcome, Result, StopReason
from watchtest.errors import RunnerError
from watchtest.runners.runner import InvocationEnd
from watchtest.runners.untrusted import first_line

TEST_LIMIT = 1_000_000
NOT_FOUND = 127
NO_TESTS = 5
FAILED = 1
DISAGREED = 70
"""In place of an exit code that would mean something else to us."""


class ResultCollector:
    """Promised tests, their results, and what could not be collected. Green never covers red."""

    def __init__(self) -> None:
        self.promised: set[str] = set()
        self.results: dict[str, Result] = {}
        self.errors: dict[str, Result] = {}

    def promise(self, test: str) -> bool:
        """Whether that is new."""
        if not test or test in self.promised or len(self.promised) >= TEST_LIMIT:
            return False
        self.promised.add(test)
        return True

    def add(self, result: Result) -> bool:
        """Whether it counts: of a promised test, and not green after red."""
        before = self.results.get(result.test)
        if result.test not in self.promised or (before and before.outcome.is_red and not result.outcome.is_red):
            return False
        self.results[result.test] = result
        return True

    def error(self, what: str, failure: Failure) -> None:
        """A file or package that could not be collected; the first reason stands."""
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
        """`is_whole`: all tests there are were seen, each to its end. `reason` goes behind what the box says."""
        if end.exit_code == NOT_FOUND and not self.promised and not self.errors and end.stopped is None:
            raise RunnerError(
                f"{tool} cannot be run in the box: {first_line(end.output) or 'it is not there'}",
                hint=f"use an image that has {tool} (box.image), or install it in the box (box.setup)",
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
