"""Audits: when more tests run than a change requires, and what happens with their results."""

from __future__ import annotations

from dataclasses import replace

from support.watcher_states import NOON, failed, passed

from watchtest.core.events import (
    Halted,
    Judged,
    RunEnded,
    SetTimer,
    SnapshotTaken,
    SourceChanged,
    SourceCompared,
    StartRun,
    StopRun,
    TestsCollected,
    TimerFired,
)
from watchtest.core.model import All, Execution, Lane, Only, Policy, Result, Selection, Snapshot, StopReason
from watchtest.core.state import AuditSchedule, Idle, LaneSettings, LaneState, State, Working
from watchtest.core.step import step

A, B, C = ("tests/test_a.py::test_a", "tests/test_a.py::test_b", "tests/test_c.py::test_c")


class Story:
    """Steps a lane through its runs; each run selects what the story says."""

    def __init__(self, **audit: float) -> None:
        schedule = AuditSchedule(int(audit.get("runs", 0)), float(audit.get("idle_s", 0.0)))
        self.state = State(
            {Lane.SAVE: LaneState(Lane.SAVE, Policy.AFFECTED, "s", LaneSettings(audit=schedule), Idle())}
        )
        self.now = NOON
        self.effects: tuple[object, ...] = ()

    @property
    def lane(self) -> LaneState:
        return self.state.lanes[Lane.SAVE]

    @property
    def working(self) -> Working:
        assert isinstance(self.lane.activity, Working)
        return self.lane.activity

    def take(self, event: object) -> None:
        self.state, self.effects = step(self.state, event)  # type: ignore[arg-type]

    def change(self, *paths: str) -> None:
        self.now += 10
        self.take(SourceChanged(Lane.SAVE, self.now, frozenset(paths or {"a.py"})))

    def end(self, tree: str, *results: Result, selection: Selection | None = None) -> None:
        working = self.working
        if selection is not None:
            run = replace(working.run, selection=selection)
            self.state = replace(self.state, lanes={Lane.SAVE: replace(self.lane, activity=replace(working, run=run))})
        snapshot = Snapshot(tree, {})
        self.take(SnapshotTaken(Lane.SAVE, self.now, working.run.id, snapshot))
        execution = Execution(
            exit_code=int(any(result.outcome.is_red for result in results)),
            promised=frozenset(result.test for result in results),
            results={result.test: result for result in results},
        )
        self.now += 1
        self.take(RunEnded(Lane.SAVE, self.now, working.run.id, Judged(snapshot, execution, "box")))

    def started(self) -> StartRun | None:
        return next((effect for effect in self.effects if isinstance(effect, StartRun)), None)


def only(*tests: str) -> Only:
    return Only(tests, "a change", is_proof=True)


def green(story: Story) -> None:
    story.change()
    story.end("t1", passed(A), passed(B), passed(C))


def test_after_so_many_narrowed_runs_everything_runs_once() -> None:
    story = Story(runs=2)
    green(story)
    assert story.started() is None
    story.change()
    story.end("t2", passed(A), selection=only(A))
    assert story.started() is None
    story.change()
    story.end("t3", passed(A), selection=only(A))
    audit = story.started()
    assert audit is not None
    assert audit.run.is_audit
    assert isinstance(audit.run.selection, All)
    story.end("t3", passed(A), passed(B), passed(C))
    assert story.started() is None
    assert story.lane.audit.narrowed_runs == 0


def test_an_audit_that_cannot_collect_a_file_is_not_repeated_until_tests_are_left_out_again() -> None:
    story = Story(runs=1, idle_s=60.0)
    story.change()
    story.end("t1", passed(A), passed(C))
    story.change()
    story.end("t2", passed(A), selection=only(A))
    audit = story.started()
    assert audit is not None
    assert audit.run.is_audit
    snapshot = Snapshot("t2", {})
    uncollected = Execution(2, frozenset({A}), {}, collection_errors=(failed("tests/test_c.py"),))
    story.take(RunEnded(Lane.SAVE, story.now, audit.run.id, Judged(snapshot, uncollected, "box")))
    assert not any(isinstance(effect, StartRun | SetTimer) for effect in story.effects)
    assert isinstance(story.lane.activity, Idle)
    story.change()
    story.end("t3", passed(A), selection=only(A))
    assert story.started() is not None


def test_at_rest_for_long_enough_it_does_so_too_and_not_before() -> None:
    story = Story(idle_s=60)
    green(story)
    story.change()
    story.end("t2", passed(A), selection=only(A))
    due = next(effect.at for effect in story.effects if isinstance(effect, SetTimer))
    assert due == story.now + 60
    story.take(TimerFired(Lane.SAVE, due - 1))
    assert story.started() is None
    story.take(TimerFired(Lane.SAVE, due))
    assert story.started() is not None
    assert story.working.run.is_audit


def test_there_is_no_audit_if_nothing_was_left_out_or_it_is_off() -> None:
    story = Story(idle_s=60, runs=1)
    green(story)
    assert story.effects == () or all(not isinstance(effect, SetTimer) for effect in story.effects)
    never = Story()
    green(never)
    never.change()
    never.end("t2", passed(A), selection=only(A))
    assert not any(isinstance(effect, SetTimer | StartRun) for effect in never.effects)


def test_any_change_ends_an_audit_and_it_is_not_made_up_for() -> None:
    story = Story(runs=1)
    green(story)
    story.change()
    story.end("t2", passed(A), selection=only(A))
    audit = story.working.run
    assert audit.is_audit
    story.take(SnapshotTaken(Lane.SAVE, story.now, audit.id, Snapshot("t2", {})))
    story.take(TestsCollected(Lane.SAVE, story.now, audit.id, frozenset({A, B, C})))
    story.change("README.md")
    story.take(SourceCompared(Lane.SAVE, story.now, audit.id, frozenset({"README.md"})))
    assert any(isinstance(effect, StopRun) and effect.stop is StopReason.SUPERSEDED for effect in story.effects)
    story.take(RunEnded(Lane.SAVE, story.now, audit.id, Halted(StopReason.SUPERSEDED)))
    assert not story.working.run.is_audit
    assert not story.lane.queue.waiting


def test_new_red_of_a_part_of_a_file_is_red_at_once_and_looked_at_in_company() -> None:
    story = Story()
    green(story)
    story.change()
    story.end("t2", failed(B), selection=only(B))
    assert story.lane.knowledge.verdict.is_red
    company = story.working.run
    assert company.is_audit
    assert company.selection == Only(("tests/test_a.py",), company.selection.because)
    story.end("t2", passed(A), passed(B))
    assert not story.lane.knowledge.verdict.is_red
    assert story.lane.knowledge.is_complete
    assert story.started() is None


def test_what_is_red_in_company_too_is_not_looked_at_again() -> None:
    story = Story()
    green(story)
    story.change()
    story.end("t2", failed(B), selection=only(B))
    story.end("t2", passed(A), failed(B))
    assert story.lane.knowledge.verdict.is_red
    assert story.lane.audit.confirmed_red == {B}
    story.change()
    story.end("t3", passed(B), selection=only(B))
    story.change()
    story.end("t4", failed(B), selection=only(B))
    assert story.started() is None


def test_red_of_a_whole_file_needs_no_company() -> None:
    story = Story()
    green(story)
    story.change()
    story.end("t2", failed(C), selection=only(C))
    assert story.started() is None
