"""A run with several runners: what is reported if it is stopped between two of them, or in one."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from watchtest.boxes.environment import Environment
from watchtest.boxes.local.local_provider import LocalProvider, LocalSpec
from watchtest.boxes.protocols import (
    BoxSession,
    Command,
    JobLimits,
    JobResult,
    JobSpec,
    OnOutput,
    OnResults,
    PytestCommand,
    StopSignal,
)
from watchtest.core.events import StartRun
from watchtest.core.model import (
    All,
    Entry,
    EntryKind,
    Execution,
    Lane,
    Only,
    Outcome,
    Result,
    Run,
    RunState,
    Selection,
    Snapshot,
    StopReason,
    Trigger,
)
from watchtest.core.state import Knowledge, KnownTest
from watchtest.core.verdict import blamed_tests, judge, learn
from watchtest.errors import ChannelLost, RunOverdue
from watchtest.execution import AnyRunner, RunContext, TestExecutor
from watchtest.runners.command import CommandRunner
from watchtest.runners.go.go_runner import GoRunner
from watchtest.runners.javascript.javascript_runner import JestRunner
from watchtest.runners.python import PytestRunner
from watchtest.selection.selector import SelectionInput, Selector

RUN = Run("s.1", Lane.SAVE, Trigger.SAVE, All(""))
TREE = Snapshot("t1", {})
GREEN = JobResult(0, None, "", "", "", 0.1)
CANCELLED = JobResult(None, "cancelled", "", "", "", 0.1)
KILLED = JobResult(None, "killed", "", "", "", 0.1)
TIMED_OUT = JobResult(None, "timed_out", "the run took longer than 5 s", "", "", 5.0)


class FakeSession:
    """Ends each job as `ends` says for its command; a job with a stop signal is stopped."""

    lost_in = ""
    channel = SimpleNamespace(was_stopped=False)

    def __init__(self, ends: Callable[[str], JobResult]) -> None:
        self._ends = ends
        self.begun: list[str] = []
        self.asked: list[tuple[str, ...] | None] = []

    async def run(
        self, job: JobSpec, on_results: OnResults, on_output: OnOutput, stop: asyncio.Queue[bool] | None = None
    ) -> JobResult:
        assert stop is not None
        command = job.command.argv[0] if isinstance(job.command, Command) else "pytest"
        self.begun.append(command)
        if isinstance(job.command, PytestCommand):
            self.asked.append(job.command.tests)
            on_results([{"k": "collected", "tests": ["test_a.py::test_a"]}, {"k": "collection_end"}])
        if not stop.empty():
            return KILLED if stop.get_nowait() else CANCELLED
        return self._ends(command)


FIRST = CommandRunner(command=("first",), name="first")
SECOND = CommandRunner(command=("second",), name="second")


def executed(
    folder: Path, signal: StopSignal, session: FakeSession, *runners: AnyRunner, selection: Selection | None = None
) -> Execution:
    provider = LocalProvider(LocalSpec(folder, "workspace", python=sys.executable, sandbox="off"), {})
    environment = Environment(provider, timeout_s=60, grace_s=1, python="", env={})
    chosen = runners or (FIRST, SECOND)
    testing = TestExecutor(environment, JobLimits(5, 5, 1), "off", lambda _snapshot: chosen, Selector(mode="all"))
    return asyncio.run(testing.execute(run_context(session, signal, selection)))


def run_context(
    session: FakeSession,
    signal: StopSignal,
    selection: Selection | None = None,
    tree: Snapshot = TREE,
    known: frozenset[str] = frozenset(),
) -> RunContext:
    """Return the context of a run of `tree`; everything that is known is about TREE."""
    start = StartRun(replace(RUN, selection=selection or RUN.selection), frozenset())
    ignore: Any = lambda _what: None  # noqa: E731  both for events and for notes
    selection_input = SelectionInput(tree, "", TREE if known else None, known, frozenset(), ignore)
    box = cast(BoxSession, session)
    return RunContext(box, tree, 1, sys.executable, "", start, frozenset(), ignore, ignore, signal, selection_input)


@pytest.mark.parametrize("stop", [StopReason.CANCELLED, StopReason.KILLED, StopReason.SUPERSEDED])
def test_a_run_that_is_stopped_between_two_runners_is_no_verdict(tmp_path: Path, stop: StopReason) -> None:
    signal = StopSignal()

    def ends(_command: str) -> JobResult:
        signal.set(stop)
        signal.job_stops.get_nowait()  # taken by the job that ends by itself at this moment
        return GREEN

    execution = executed(tmp_path, signal, FakeSession(ends))
    assert execution.stopped in (StopReason.CANCELLED, StopReason.KILLED)
    assert judge(execution).state is not RunState.PASSED


def test_a_stop_signal_after_the_last_runner_is_too_late(tmp_path: Path) -> None:
    signal = StopSignal()

    def ends(command: str) -> JobResult:
        if command == "second":
            signal.set(StopReason.CANCELLED)
        return GREEN

    assert judge(executed(tmp_path, signal, FakeSession(ends))).state is RunState.PASSED


def test_what_a_runner_would_have_found_behind_one_that_hung_is_not_taken_for_gone(tmp_path: Path) -> None:
    session = FakeSession(lambda _command: TIMED_OUT)
    execution = executed(tmp_path, StopSignal(), session, PytestRunner(), SECOND)
    assert session.begun == ["pytest"]
    known = Knowledge(tests={"second::run": KnownTest(Result("second::run", Outcome.FAILED, 0.1), "t0", "s.0")})
    assert "second::run" in {what.result.test for what in learn(known, RUN, TREE, execution, 1.0).red}


def test_each_of_several_pytests_is_asked_for_the_tests_below_its_own_folder(tmp_path: Path) -> None:
    session = FakeSession(lambda _command: GREEN)
    runners = (PytestRunner(folder="back", name="back"), PytestRunner(folder="backdoor", name="backdoor"))
    tests = ("backdoor/test_b.py::test_b", "back/test_a.py::test_a")
    executed(tmp_path, StopSignal(), session, *runners, selection=Only(tests, ""))
    assert session.asked == [("back/test_a.py::test_a",), ("backdoor/test_b.py::test_b",)]


# -- what has to run -------------------------------------------------------------------------------

LINT = CommandRunner(command=("lint",), name="lint")
LINTED = frozenset({"lint::run"})
CHANGED = Snapshot("t2", {"a.json": Entry(EntryKind.FILE, 0o644, 1, "1")})


def a_testing(folder: Path, *runners: AnyRunner) -> TestExecutor:
    provider = LocalProvider(LocalSpec(folder, "workspace", python=sys.executable, sandbox="off"), {})
    environment = Environment(provider, timeout_s=60, grace_s=1, python="", env={})
    selector = Selector(patterns=(("*.list -> lint", lambda path: path.endswith(".list"), "lint"),))
    return TestExecutor(environment, JobLimits(5, 5, 1), "off", lambda _snapshot: runners, selector)


def selected(testing: TestExecutor, session: FakeSession, known: frozenset[str]) -> Selection:
    """Return the selection for a change of a.json after a run of everything."""
    asyncio.run(testing.execute(run_context(session, StopSignal())))
    return asyncio.run(testing.select(run_context(session, StopSignal(), tree=CHANGED, known=known)))


def test_a_runner_that_was_only_found_and_lacks_its_tool_is_not_asked_again(tmp_path: Path) -> None:
    session = FakeSession(lambda command: GREEN if command == "lint" else JobResult(127, None, "", "no jest", "", 0.1))
    selection = selected(a_testing(tmp_path, LINT, JestRunner()), session, LINTED)
    assert isinstance(selection, Only)
    assert (selection.tests, selection.whole, selection.is_proof) == ((), (), True)


def test_a_runner_that_cannot_tell_runs_whole_beside_one_that_can(tmp_path: Path) -> None:
    session = FakeSession(lambda _command: GREEN)
    selection = selected(a_testing(tmp_path, LINT, SECOND), session, LINTED | {"second::run"})
    assert isinstance(selection, Only)
    assert (selection.tests, selection.whole) == (("second::run",), ("second",))
    wholly = executed(tmp_path, StopSignal(), session, LINT, SECOND, selection=selection)
    assert set(wholly.results) == {"second::run"}


def test_what_was_never_tried_in_this_environment_runs_whole(tmp_path: Path) -> None:
    testing = a_testing(tmp_path, LINT)
    context = run_context(FakeSession(lambda _command: GREEN), StopSignal(), tree=CHANGED, known=LINTED)
    assert isinstance(asyncio.run(testing.select(context)), All)


def test_a_question_of_a_run_that_is_stopped_is_not_put(tmp_path: Path) -> None:
    session, signal = FakeSession(lambda _command: GREEN), StopSignal()
    testing = a_testing(tmp_path, LINT, GoRunner())
    asyncio.run(testing.execute(run_context(session, StopSignal())))
    begun = len(session.begun)
    signal.set(StopReason.CANCELLED)
    go = frozenset({".::TestIt"})
    selection = asyncio.run(testing.select(run_context(session, signal, tree=CHANGED, known=LINTED | go)))
    assert len(session.begun) == begun
    assert isinstance(selection, Only)
    assert selection.whole == ("go",)


# -- runs that take their box away -----------------------------------------------------------------


class LostSession(FakeSession):
    """Loses its box in each job, while the next of these tests is running; the next session knows which it was."""

    def __init__(self, error: ChannelLost, *tests: str) -> None:
        super().__init__(lambda _command: GREEN)
        self._error = error
        self._tests = itertools.cycle(tests or ("",))

    async def run(
        self, job: JobSpec, on_results: OnResults, on_output: OnOutput, stop: asyncio.Queue[bool] | None = None
    ) -> JobResult:
        await super().run(job, on_results, on_output, stop)
        self.lost_in = next(self._tests)
        raise self._error


def attempts(folder: Path, sessions: Iterable[FakeSession], tree: Snapshot = TREE) -> list[Execution | ChannelLost]:
    """Return how each attempt at one run ended."""
    provider = LocalProvider(LocalSpec(folder, "workspace", python=sys.executable, sandbox="off"), {})
    environment = Environment(provider, timeout_s=60, grace_s=1, python="", env={})
    choose: Any = lambda _snapshot: (PytestRunner(),)  # noqa: E731
    testing = TestExecutor(environment, JobLimits(5, 5, 1), "off", choose, Selector(mode="all"))
    found: list[Execution | ChannelLost] = []
    for session in sessions:
        try:
            found.append(asyncio.run(testing.execute(run_context(session, StopSignal(), tree=tree))))
        except ChannelLost as lost:
            found.append(lost)
    return found


def test_a_test_that_ends_its_box_three_times_in_a_row_is_blamed(tmp_path: Path) -> None:
    session = LostSession(ChannelLost("gone"), "test_a.py::test_a")
    first, second, third = attempts(tmp_path, [session] * 3)
    assert isinstance(first, ChannelLost)
    assert isinstance(second, ChannelLost)
    assert isinstance(third, Execution)
    assert third.has_lost_box
    assert judge(third).state is RunState.ERROR
    assert [result.test for result in blamed_tests(third)] == ["test_a.py::test_a"]


def test_a_box_that_is_lost_in_different_tests_is_not_their_doing(tmp_path: Path) -> None:
    session = LostSession(ChannelLost("gone"), "test_a.py::test_a", "test_a.py::test_b")
    assert all(isinstance(end, ChannelLost) for end in attempts(tmp_path, [session] * 6))


def test_losses_before_a_run_that_ended_do_not_count(tmp_path: Path) -> None:
    lost: FakeSession = LostSession(ChannelLost("gone"), "test_a.py::test_a")
    whole = FakeSession(lambda _command: GREEN)
    ends = attempts(tmp_path, [lost, lost, whole, lost, lost])
    assert [type(end) for end in ends] == [ChannelLost, ChannelLost, Execution, ChannelLost, ChannelLost]


def test_a_run_that_does_not_end_has_timed_out_and_is_not_repeated(tmp_path: Path) -> None:
    (end,) = attempts(tmp_path, [LostSession(RunOverdue("late"))])
    assert isinstance(end, Execution)
    assert (end.stopped, end.has_lost_box) == (StopReason.TIMED_OUT, True)
    assert "could not be stopped" in end.reason


def test_tests_that_keep_stopping_the_box_are_not_repeated(tmp_path: Path) -> None:
    session = LostSession(ChannelLost("its processes are stopped"))
    session.channel = SimpleNamespace(was_stopped=True)
    (end,) = attempts(tmp_path, [session])
    assert isinstance(end, Execution)
    assert judge(end).state is RunState.ERROR
