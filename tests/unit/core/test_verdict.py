"""Which conclusions one execution allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from watchtest.core.model import (
    All,
    Execution,
    Failure,
    Lane,
    Location,
    Only,
    Outcome,
    Result,
    Run,
    RunState,
    Selection,
    Snapshot,
    StopReason,
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
        (execution(GREEN, stopped=StopReason.TIMED_OUT, exit_code=2), RunState.TIMED_OUT),
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
    again = learn(first, run(All(""), 2), Snapshot("t1", {}), execution(RED, exit_code=1), 2.0)
    assert again.tests[RED.test].is_new  # a second run of the same code
    other = learn(first, run(Only((GREEN.test,), ""), 2), Snapshot("t1", {}), execution(GREEN), 2.0)
    assert other.tests[RED.test].is_new


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


def test_one_test_of_an_unknown_tree_is_no_verdict_on_it() -> None:
    known = learn(Knowledge(), run(Only((GREEN.test,), "")), Snapshot("t1", {}), execution(GREEN), 1.0)
    assert known.verdict is Verdict.UNKNOWN
    assert known.reason == "only some tests were run on this tree"


def test_a_withdrawn_test_is_not_taken_for_run() -> None:
    """With -x, tests after the failure were promised but never ran; their old green must not count for the new tree."""
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


# -- processes that end badly ----------------------------------------------------------------------

BEHIND = "a.py::behind"
BOOM = "a.py::boom"
STACKS = """Current thread 0x1 (most recent call first):
  File "/box/tree/lib.py", line 9 in dig
  File "/box/tree/a.py", line 4 in boom
"""


def cut_short(exit_code: int | None, reason: str, current: str = BOOM, **more: object) -> Execution:
    return execution(
        GREEN, exit_code=exit_code, promised=(BOOM, BEHIND), reason=reason, current=current, has_finished=False, **more
    )


@pytest.mark.parametrize(
    ("what", "state", "kind", "reason"),
    [
        (
            cut_short(None, f"the process was ended by SIGSEGV in {BOOM}"),
            RunState.ERROR,
            "crashed",
            f"the process was ended by SIGSEGV in {BOOM}; 1 test not run",
        ),
        (
            cut_short(0, f"the process exited with 0 in {BOOM}"),
            RunState.ERROR,
            "exited",
            f"the process exited with 0 in {BOOM}; 1 test not run",
        ),
        (cut_short(7, ""), RunState.ERROR, "exited", f"exit code 7, in {BOOM}; 1 test not run"),
        (cut_short(None, ""), RunState.ERROR, "crashed", f"the process disappeared, in {BOOM}; 1 test not run"),
        (
            cut_short(None, "the run took longer than 2 s", stopped=StopReason.TIMED_OUT),
            RunState.TIMED_OUT,
            "timed out",
            f"the run took longer than 2 s, in {BOOM}; 1 test not run",
        ),
        (
            cut_short(2, "out of time", stopped=StopReason.TIMED_OUT),
            RunState.TIMED_OUT,
            "timed out",
            f"out of time, in {BOOM}; 1 test not run",
        ),
    ],
)
def test_a_process_that_ends_badly_is_blamed_on_the_test_it_ended_in(
    what: Execution, state: RunState, kind: str, reason: str
) -> None:
    judgement = judge(what)
    assert (judgement.state, judgement.reason) == (state, reason)
    known = learn(Knowledge(), run(All("")), Snapshot("t1", {}), what, 1.0)
    assert (known.verdict, known.reason, known.is_complete) == (Verdict.ERROR, reason, False)
    assert known.tests.keys() == {GREEN.test, BOOM}, "the test after it has done nothing wrong"
    blamed = known.tests[BOOM].result
    assert blamed.outcome is Outcome.ERROR
    assert blamed.failure is not None
    assert (blamed.failure.kind, blamed.failure.message) == (kind, reason.partition(";")[0])


def test_the_tests_behind_a_crash_keep_what_was_known_of_them_and_are_stale() -> None:
    behind, gone = Result(BEHIND, Outcome.PASSED, 0.1), Result("a.py::gone", Outcome.PASSED, 0.1)
    first = learn(Knowledge(), run(All("")), Snapshot("t1", {}), execution(GREEN, behind, gone), 1.0)
    second = learn(first, run(All(""), 2), Snapshot("t2", {}), cut_short(None, "SIGSEGV"), 2.0)
    assert second.tests[BEHIND].result.outcome is Outcome.PASSED
    assert second.tests[BEHIND].snapshot == "t1"
    assert gone.test not in second.tests, "the collection was complete"
    mended = execution(GREEN, behind, Result(BOOM, Outcome.PASSED, 0.1))
    assert learn(second, run(All(""), 3), Snapshot("t3", {}), mended, 3.0).verdict is Verdict.PASSED


def test_a_crash_ends_what_was_known_for_certain_of_the_same_tree() -> None:
    """Otherwise the next save without new content would count as "nothing to run"."""
    green = execution(GREEN, Result(BOOM, Outcome.PASSED, 0.1), Result(BEHIND, Outcome.PASSED, 0.1))
    first = learn(Knowledge(), run(All("")), Snapshot("t1", {}), green, 1.0)
    assert first.is_complete
    second = learn(first, run(All(""), 2), Snapshot("t1", {}), cut_short(None, "SIGSEGV"), 2.0)
    assert (second.verdict, second.is_complete) == (Verdict.ERROR, False)


@pytest.mark.parametrize(
    "crash",
    [
        replace(cut_short(None, "SIGSEGV"), stacks=STACKS),
        replace(cut_short(None, "SIGSEGV"), raw_output="noise\n" + STACKS),
    ],
)
def test_a_crash_is_told_at_its_line_in_the_test(crash: Execution) -> None:
    known = learn(Knowledge(), run(All("")), Snapshot("t1", {}), crash, 1.0)
    failure = known.tests[BOOM].result.failure
    assert failure is not None
    assert failure.where == Location("a.py", 4)
    assert STACKS in failure.text + failure.output


def test_no_test_is_blamed_for_a_run_that_finished_or_was_cancelled() -> None:
    finished = execution(GREEN, current=BOOM)
    assert judge(finished).state is RunState.PASSED
    cancelled = cut_short(None, "", stopped=StopReason.CANCELLED)
    assert judge(cancelled).state is RunState.CANCELLED


def test_without_a_name_every_silent_test_is_red() -> None:
    known = learn(Knowledge(), run(All("")), Snapshot("t1", {}), cut_short(None, "SIGKILL", current=""), 1.0)
    assert {red.result.test for red in known.red} == {BOOM, BEHIND}
    assert known.reason == "2 tests promised by the collection and never reported (SIGKILL)"


def broken_file(name: str, kind: str, message: str) -> Result:
    return Result(name, Outcome.ERROR, 0.0, Failure(kind, message))


@pytest.mark.parametrize(
    ("what", "state", "reason"),
    [
        (
            execution(exit_code=2, collection_errors=(broken_file("a.py", "SyntaxError", "SyntaxError: bad\nmore"),)),
            RunState.ERROR,
            "1 file could not be collected: a.py: SyntaxError: bad",
        ),
        (
            execution(
                exit_code=2,
                collection_errors=(
                    broken_file("a.py", "ModuleNotFoundError", "ModuleNotFoundError: No module named 'x'"),
                    broken_file("b.py", "ImportError", "ImportError: y"),
                ),
            ),
            RunState.ERROR,
            "2 files could not be imported: a.py: ModuleNotFoundError: No module named 'x'",
        ),
        (
            execution(
                exit_code=2,
                collection_errors=(broken_file("a.py", "ImportError", "x"), broken_file("b.py", "ValueError", "y")),
            ),
            RunState.ERROR,
            "2 files could not be collected: a.py: x",
        ),
        (
            execution(exit_code=None, reason="SIGSEGV", has_collected=False, has_finished=False),
            RunState.ERROR,
            "the runner ended before it had collected the tests (SIGSEGV)",
        ),
        (
            execution(exit_code=0, has_collected=False, has_finished=False),
            RunState.ERROR,
            "the runner ended before it had collected the tests (exit code 0)",
        ),
        (
            execution(exit_code=None, reason="too long", stopped=StopReason.TIMED_OUT, has_collected=False),
            RunState.TIMED_OUT,
            "too long, while the tests were collected",
        ),
        (
            execution(GREEN, exit_code=None, reason="too long", stopped=StopReason.TIMED_OUT, has_collected=False),
            RunState.TIMED_OUT,
            "too long",
        ),
        (
            execution(
                exit_code=None,
                reason="too long",
                stopped=StopReason.TIMED_OUT,
                has_collected=False,
                collects_first=False,
            ),
            RunState.TIMED_OUT,
            "too long",
        ),
        (
            execution(exit_code=2, has_collected=False, has_finished=False, collects_first=False),
            RunState.ERROR,
            "the runner ended before it had finished (exit code 2)",
        ),
        (
            execution(GREEN, exit_code=None, reason="SIGSEGV", has_collected=False, has_finished=False),
            RunState.ERROR,
            "the runner ended before it had finished (SIGSEGV)",
        ),
        (execution(exit_code=5), RunState.NO_TESTS, "the runner found no tests"),
        (execution(exit_code=0), RunState.NO_TESTS, "the runner exited with 0 and reported no test"),
        (
            execution(GREEN, has_finished=False),
            RunState.ERROR,
            "the runner ended before it had finished (exit code 0)",
        ),
        (execution(GREEN, exit_code=4), RunState.ERROR, "the runner exited with 4"),
    ],
)
def test_every_bad_end_has_a_reason_of_its_own(what: Execution, state: RunState, reason: str) -> None:
    judgement = judge(what)
    assert (judgement.state, judgement.reason) == (state, reason)
