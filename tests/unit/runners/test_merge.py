"""The executions of several runners in one workspace, merged into one."""

from __future__ import annotations

import pytest

from watchtest.core.model import (
    All,
    Execution,
    Failure,
    Lane,
    Outcome,
    Result,
    Run,
    RunState,
    Snapshot,
    StopReason,
    Trigger,
    Verdict,
)
from watchtest.core.state import Knowledge
from watchtest.core.verdict import judge, learn
from watchtest.runners.merge import merge

RUN = Run("s.1", Lane.SAVE, Trigger.SAVE, All(""))
FAILURE = Failure("AssertionError", "no")


def said(
    runner: str, *tests: str, red: tuple[str, ...] = (), exit_code: int | None = None, **more: object
) -> Execution:
    results = {test: Result(test, Outcome.PASSED, 0.1) for test in tests}
    results |= {test: Result(test, Outcome.FAILED, 0.1, FAILURE) for test in red}
    code = exit_code if exit_code is not None else (1 if red else 0 if tests else 5)
    values = {"promised": frozenset(results), "duration_s": 1.0, **more}
    return Execution(code, results=results, runner=runner, **values)  # type: ignore[arg-type]


def test_one_runner_alone_is_itself() -> None:
    alone = said("pytest", "a.py::a")
    assert merge([alone]) is alone


def test_none_is_an_error_of_ours() -> None:
    with pytest.raises(ValueError, match="no runner has run"):
        merge([])


def test_all_that_was_said_is_kept() -> None:
    broken = Result("b.py", Outcome.ERROR, 0.0, FAILURE)
    first = said("pytest", "a.py::a", red=("a.py::b",), reason="one", raw_output="out one", withdrawn="-x")
    second = said("go", "pkg::T", reason="two", raw_output="out two", collection_errors=(broken,), stacks="here")
    both = merge([first, second])
    assert both.promised == both.results.keys() == {"a.py::a", "a.py::b", "pkg::T"}
    assert both.collection_errors == (broken,)
    assert both.duration_s == 2.0
    assert both.reason == "pytest: one; go: two"
    assert both.raw_output == "pytest:\nout one\ngo:\nout two"
    assert both.withdrawn == "pytest: -x"
    assert both.stacks == "go:\nhere"
    assert both.runner == "pytest + go"


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ((0, 0), 0),
        ((0, 5), 0),
        ((5, 5), 5),
        ((0, 1), 1),
        ((5, 1), 1),
        ((1, 3), 3),
        ((101, 2), 101),
    ],
)
def test_the_exit_code_is_the_worst(codes: tuple[int, int], expected: int) -> None:
    assert merge([said("x", exit_code=code) for code in codes]).exit_code == expected


def test_a_runner_that_was_ended_by_a_signal_is_not_covered_by_another_exit_code() -> None:
    ended = Execution(None, frozenset(), {}, runner="go", has_finished=False)
    assert merge([said("pytest", "a.py::a"), ended]).exit_code is None


def test_whole_only_if_every_runner_was() -> None:
    half = said("go", "pkg::T", has_collected=False, has_finished=False, stopped=StopReason.TIMED_OUT)
    both = merge([said("pytest", "a.py::a"), half])
    assert not both.has_collected
    assert not both.has_finished
    assert both.stopped is StopReason.TIMED_OUT


def test_red_of_one_runner_is_not_covered_by_green_of_another() -> None:
    for parts in ([said("a", red=("t",)), said("b", "t")], [said("b", "t"), said("a", red=("t",))]):
        assert merge(parts).results["t"].outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("parts", "state", "reason"),
    [
        ([said("pytest", "a"), said("go", "b")], RunState.PASSED, ""),
        ([said("pytest", "a"), said("go", red=("b",))], RunState.FAILED, ""),
        ([said("pytest", "a"), said("go")], RunState.PASSED, ""),
        (
            [said("pytest"), said("go")],
            RunState.NO_TESTS,
            "pytest: the runner found no tests; go: the runner found no tests",
        ),
        ([said("pytest", red=("a",)), said("go", "b", exit_code=2)], RunState.ERROR, "go: the runner exited with 2"),
    ],
)
def test_the_worst_runner_decides_and_is_named(parts: list[Execution], state: RunState, reason: str) -> None:
    judgement = judge(merge(parts))
    assert (judgement.state, judgement.reason) == (state, reason)


def test_the_failure_of_one_runner_does_not_explain_the_exit_code_of_another() -> None:
    """Each runner is judged by itself: go exited with 1 and reported no failed test, whatever pytest found."""
    judgement = judge(merge([said("pytest", red=("a.py::a",)), said("go", "pkg::T", exit_code=1)]))
    assert judgement.state is RunState.ERROR
    assert judgement.reason == "go: the runner exited with 1, but no test was reported as failed"


def test_tests_that_are_gone_are_forgotten_and_those_of_a_broken_runner_are_not() -> None:
    first = learn(
        Knowledge(), RUN, Snapshot("t1", {}), merge([said("pytest", "a.py::a", "a.py::b"), said("go", "p::T")]), 1.0
    )
    assert first.verdict is Verdict.PASSED
    assert first.is_complete
    gone = learn(first, RUN, Snapshot("t2", {}), merge([said("pytest", "a.py::a"), said("go", "p::T")]), 2.0)
    assert gone.tests.keys() == {"a.py::a", "p::T"}
    assert gone.verdict is Verdict.PASSED
    broke = said("go", exit_code=2, has_collected=False, has_finished=False)
    kept = learn(first, RUN, Snapshot("t3", {}), merge([said("pytest", "a.py::a"), broke]), 3.0)
    assert kept.tests.keys() == {"a.py::a", "a.py::b", "p::T"}
    assert kept.verdict is Verdict.ERROR
    assert not kept.is_complete


def test_a_crash_in_one_runner_is_blamed_on_its_test_and_the_other_runner_counts() -> None:
    crash = Execution(
        None,
        frozenset({"a.py::a", "a.py::boom", "a.py::z"}),
        {"a.py::a": Result("a.py::a", Outcome.PASSED, 0.1)},
        reason="the process was ended by SIGSEGV in a.py::boom",
        has_finished=False,
        current="a.py::boom",
        runner="pytest",
    )
    known = learn(Knowledge(), RUN, Snapshot("t1", {}), merge([crash, said("go", "p::T")]), 1.0)
    assert known.tests.keys() == {"a.py::a", "a.py::boom", "p::T"}
    assert [red.result.test for red in known.red] == ["a.py::boom"]
    assert known.reason == "pytest: the process was ended by SIGSEGV in a.py::boom; 1 test not run"
