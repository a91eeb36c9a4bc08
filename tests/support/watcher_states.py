"""States for the tests of views, made as the watcher makes them: by events through `step`, never by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from watchtest.core.events import (
    EVERYTHING,
    BoxConnected,
    ConfirmationBegan,
    Event,
    Judged,
    RunEnded,
    SnapshotTaken,
    SourceChanged,
    TestsCollected,
    TestsEnded,
    ToolFailure,
)
from watchtest.core.model import (
    BoxInfo,
    Entry,
    EntryKind,
    Execution,
    Failure,
    Lane,
    Location,
    Outcome,
    Policy,
    Problem,
    Provisional,
    ProvisionalCode,
    Result,
    Snapshot,
    StopReason,
)
from watchtest.core.state import LaneState, State, Working
from watchtest.core.step import step

NOON = 1_700_000_000.0  # 2023-11-14T22:13:20Z
BOX = BoxInfo("docker", "1a2b3c4d5e6f7a8b", "python:3.12", "running", NOON - 60, python="3.12.1")
OUTDATED = Provisional(ProvisionalCode.DEPENDENCIES, "tested with the dependencies of before")
BY_HAND = Provisional(ProvisionalCode.BY_HAND, "changed by hand: pip install x", "`watchtest snapshot` keeps it")
LOST = Problem("engine", "the engine does not answer on /var/run/docker.sock", "start it with: systemctl start docker")


def passed(test: str) -> Result:
    return Result(test, Outcome.PASSED, 0.1)


def skipped(test: str) -> Result:
    return Result(test, Outcome.SKIPPED, 0.0)


def failed(test: str, line: int = 14, message: str = "assert 3 == 4", **rest: object) -> Result:
    failure = Failure(
        kind="AssertionError",
        message=message,
        where=Location(test.partition("::")[0], line),
        source_line="    assert total([1, 2]) == 4",
        crash=Location("shop/cart.py", 7),
        **rest,  # type: ignore[arg-type]
    )
    return Result(test, Outcome.FAILED, 0.2, failure)


def snapshot(tree: str, **rest: object) -> Snapshot:
    entries = {"code.py": Entry(EntryKind.FILE, 0o644, 1, tree)}
    return Snapshot(tree, entries, head="c0ffee00", branch="main", dirty=True, **rest)  # type: ignore[arg-type]


def start(*lanes: Lane, policy: Policy = Policy.ALL, once: bool = False) -> State:
    return State({lane: LaneState(lane, policy, "s") for lane in lanes or (Lane.SAVE,)}, once)


@dataclass
class Story:
    """Goes from state to state and keeps each step as (before, after, event) for views that need all three."""

    state: State = field(default_factory=start)
    lane: Lane = Lane.SAVE
    now: float = NOON
    steps: list[tuple[State, State, Event]] = field(default_factory=list)

    def on(self, event: Event) -> Story:
        before = self.state
        self.state, _ = step(before, event)
        self.steps.append((before, self.state, event))
        return self

    @property
    def working(self) -> Working:
        activity = self.state.lanes[self.lane].activity
        assert isinstance(activity, Working)
        return activity

    def change(self, *paths: str) -> Story:
        self.now += 1
        return self.on(SourceChanged(self.lane, self.now, frozenset(paths or (EVERYTHING,))))

    def box(self, box: BoxInfo = BOX) -> Story:
        return self.on(BoxConnected(self.lane, self.now, box))

    def sync(self, tree: str, **rest: object) -> Story:
        self.now += 0.1
        return self.on(SnapshotTaken(self.lane, self.now, self.working.run.id, snapshot(tree, **rest)))

    def collect(self, *tests: str) -> Story:
        self.now += 0.1
        return self.on(TestsCollected(self.lane, self.now, self.working.run.id, frozenset(tests)))

    def results(self, *results: Result, is_check: bool = False) -> Story:
        self.now += 0.1
        return self.on(TestsEnded(self.lane, self.now, self.working.run.id, results, is_check))

    def confirm(self, failures: int) -> Story:
        return self.on(ConfirmationBegan(self.lane, self.now, self.working.run.id, failures))

    def end(
        self,
        tree: str,
        results: Iterable[Result],
        *,
        exit_code: int | None = None,
        promised: Iterable[str] = (),
        collection_errors: tuple[Result, ...] = (),
        stopped: StopReason | None = None,
        raw_output: str = "",
        provisional: Provisional | None = None,
    ) -> Story:
        by_test = {result.test: result for result in results}
        is_red = any(result.outcome.is_red for result in by_test.values())
        execution = Execution(
            exit_code=exit_code if exit_code is not None else (1 if is_red else 0 if by_test else 5),
            promised=frozenset(promised) | by_test.keys(),
            results=by_test,
            collection_errors=collection_errors,
            stopped=stopped,
            raw_output=raw_output,
            duration_s=0.8,
        )
        self.now += 0.1
        ending = Judged(snapshot(tree), execution, provisional=provisional)
        return self.on(RunEnded(self.lane, self.now, self.working.run.id, ending))

    def run(self, tree: str, *results: Result, provisional: Provisional | None = None) -> Story:
        """Do a whole run, from the change to the verdict."""
        self.change("shop/cart.py").sync(tree)
        if results:
            self.collect(*(result.test for result in results)).results(*results)
        return self.end(tree, results, provisional=provisional)

    def breaks(self, problem: Problem = LOST, *, is_transient: bool = True) -> Story:
        self.now += 0.1
        return self.on(RunEnded(self.lane, self.now, self.working.run.id, ToolFailure(problem, is_transient)))
