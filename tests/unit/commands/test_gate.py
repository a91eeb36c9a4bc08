"""What the gate prints of a verdict."""

from __future__ import annotations

import pytest
from support.watcher_states import failed, passed, skipped

from watchtest.commands.gate import GateVerdict, _summary
from watchtest.core.model import Result, RunState

A, B = "a.py::one", "a.py::two"


@pytest.mark.parametrize(
    ("state", "results", "is_narrowed", "words"),
    [
        (RunState.PASSED, (passed(A), skipped(B)), False, "passed 1 test, 1 skipped"),
        (RunState.PASSED, (passed(A),), True, "passed: 1 test affected since the last green tree"),
        (RunState.PASSED, (), True, "passed: no test affected since the last green tree"),
        (RunState.FAILED, (passed(A), failed(B)), False, "failed 1 of 2 tests"),
        (RunState.ERROR, (failed("a.py"), passed(B)), False, "error"),
        (RunState.NO_TESTS, (), False, "no tests"),
    ],
)
def test_a_verdict_counts_the_tests_that_ran(
    state: RunState, results: tuple[Result, ...], is_narrowed: bool, words: str
) -> None:
    verdict = GateVerdict(state, "", "r1", 0.0, results, is_narrowed)
    assert _summary(verdict, sum(result.outcome.is_red for result in results)) == words
