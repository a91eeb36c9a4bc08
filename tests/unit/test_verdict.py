"""What may be believed of one execution."""

from __future__ import annotations

import pytest

from watchtest.core.model import (
    All,
    Execution,
    Failure,
    Lane,
    Only,
    Outcome,
    Result,
    Run,
    RunState,
    Selection,
    Snapshot,
    Stop,
    Trigger,
    Verdict,
)
from watchtest.core.state import Knowledge
from watchtest.core.verdict import judge, learn

GREEN = Result("a.py::green", Outcome.PASSED, 0.1)
RED = Result("a.py::red", Outcome.FAILED, 0.1, Failure("AssertionError", "1 == 2"))


def execution(*results: Result, exit_code: int | None = 0, promised: tuple[str, ...] = (), **more: object) -> Execution:
    names = frozenset(promised) | {result.test for result in results}
    return Execution(exit_code, names, {result.test: result for result in results}, **more)  # type: ignore[arg-type]


def run(selection: Selection, number: int = 1) -> Run:
    return Run(f"s.{number}", Lane.SAVE, Trigger.SAVE, selection)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (execution(GREEN), RunState.PASSED),
        (execution(RED, exit_code=1), RunState.FAILED),
        (execution(RED, exit_code=0), RunState.FAILED),
        (execution(GREEN, exit_code=1), RunState.ERROR),
        (execution(GREEN, exit_code=3), RunState.ERROR),
        (execution(GREEN, exit_code=None), RunState.ERROR),
        (execution(GREEN, promised=("a.py::silent",)), RunState.ERROR),
        (execution(exit_code=5), RunState.NO_TESTS),
        (execution(exit_code=0), RunState.NO_TESTS),
        (execution(GREEN, collection_errors=(RED,), exit_code=2), RunState.ERROR),
        (execution(GREEN, stopped=Stop.TIMED_OUT, exit_code=2), RunState.TIMED_OUT),
        (
            execution(RED, exit_code=1, promised=("a.py::after",), withdrawn="stopping after 1 failures"),
            RunState.FAILED,
        ),
        (execution(GREEN, exit_code=2, promised=("a.py::after",), withdrawn="stopped"), RunState.ERROR),
    ],
)
def test_exit_code_and_reports_have_to_agree(what: Execution, expected: RunState) -> None:
    assert judge(what).state is expected


def test_every_state_but_green_says_why() -> None:
    for what in (
        execution(GREEN, exit_code=1),
        execution(GREEN, promised=("a.py::silent",)),
        execution(exit_code=None),
    ):
        assert judge(what).reason


def test_a_promised_test_that_never_reported_is_known_as_red() -> None:
    known = learn(Knowledge(), run(All("")), Snapshot("t", {}), execution(GREEN, promised=("a.py::silent",)), 1.0)
    assert known.verdict is Verdict.ERROR
    assert known.tests["a.py::silent"].result.outcome is Outcome.ERROR


def test_a_known_failure_stays_red_until_that_very_test_has_passed() -> None:
    first = learn(Knowledge(), run(All("")), Snapshot("t1", {}), execution(GREEN, RED, exit_code=1), 1.0)
    second = learn(first, run(Only((GREEN.test,), ""), 2), Snapshot("t2", {}), execution(GREEN), 2.0)
    assert second.verdict is Verdict.FAILED
    mended = Result(RED.test, Outcome.PASSED, 0.1)
    third = learn(second, run(All(""), 3), Snapshot("t2", {}), execution(GREEN, mended), 3.0)
    assert third.verdict is Verdict.PASSED


def test_a_failure_keeps_the_time_it_began_and_is_new_only_once() -> None:
    first = learn(Knowledge(), run(All("")), Snapshot("t1", {}), execution(RED, exit_code=1), 1.0)
    second = learn(first, run(All(""), 2), Snapshot("t2", {}), execution(RED, exit_code=1), 2.0)
    assert (first.tests[RED.test].is_new, second.tests[RED.test].is_new) == (True, False)
    assert second.tests[RED.test].red_since == 1.0


def test_a_deleted_test_is_forgotten_only_by_a_whole_collection() -> None:
    first = learn(Knowledge(), run(All("")), Snapshot("t1", {}), execution(GREEN, RED, exit_code=1), 1.0)
    broken = Result("a.py", Outcome.ERROR, 0.0, Failure("SyntaxError", "invalid"))
    kept = learn(first, run(All(""), 2), Snapshot("t2", {}), execution(exit_code=2, collection_errors=(broken,)), 2.0)
    assert kept.tests[RED.test].result.outcome is Outcome.FAILED
    gone = learn(kept, run(All(""), 3), Snapshot("t3", {}), execution(GREEN), 3.0)
    assert gone.tests.keys() == {GREEN.test}
    assert gone.verdict is Verdict.PASSED


def test_some_tests_on_a_new_tree_are_no_verdict_on_all_of_it() -> None:
    first = learn(Knowledge(), run(All("")), Snapshot("t1", {}), execution(GREEN, RED, exit_code=1), 1.0)
    mended = Result(RED.test, Outcome.PASSED, 0.1)
    second = learn(first, run(Only((RED.test,), ""), 2), Snapshot("t2", {}), execution(mended), 2.0)
    assert second.verdict is Verdict.UNKNOWN
    assert "1 test not run" in second.reason


def test_a_proof_speaks_for_the_tests_it_left_out() -> None:
    first = learn(Knowledge(), run(All("")), Snapshot("t1", {}), execution(GREEN, RED, exit_code=1), 1.0)
    mended = Result(RED.test, Outcome.PASSED, 0.1)
    second = learn(first, run(Only((RED.test,), "", is_proof=True), 2), Snapshot("t2", {}), execution(mended), 2.0)
    assert second.verdict is Verdict.PASSED
    assert second.tests[GREEN.test].snapshot == "t2"


def test_one_test_of_a_tree_that_nobody_knows_is_no_verdict_on_it() -> None:
    known = learn(Knowledge(), run(Only((GREEN.test,), "")), Snapshot("t1", {}), execution(GREEN), 1.0)
    assert known.verdict is Verdict.UNKNOWN
    assert known.reason == "only some tests were run on this tree"


def test_a_withdrawn_test_is_not_taken_for_run() -> None:
    """-x: what came after the failure was promised, never ran, and must not lend its old green to the new tree."""
    other = Result("a.py::other", Outcome.PASSED, 0.1)
    first = learn(Knowledge(), run(All("")), Snapshot("t1", {}), execution(GREEN, other), 1.0)
    stopped = execution(
        Result(GREEN.test, Outcome.FAILED, 0.1, Failure("E", "")), exit_code=1, promised=(other.test,), withdrawn="-x"
    )
    second = learn(first, run(All(""), 2), Snapshot("t2", {}), stopped, 2.0)
    third = learn(second, run(Only((GREEN.test,), ""), 3), Snapshot("t2", {}), execution(GREEN), 3.0)
    assert third.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("exit_code", [2, 3, 4])
def test_a_runner_that_never_collected_forgets_no_failure(exit_code: int) -> None:
    first = learn(Knowledge(), run(All("")), Snapshot("t1", {}), execution(RED, exit_code=1), 1.0)
    broke = execution(exit_code=exit_code, has_collected=False, has_finished=False)
    second = learn(first, run(All(""), 2), Snapshot("t2", {}), broke, 2.0)
    assert RED.test in second.tests
    assert second.verdict is Verdict.ERROR
