"""What the history has to be told of a step of the watcher. Pure: what it is told is done by `record`.

Of every run that was accepted: that it was queued, each state it went through, what it said, and exactly one end. A run
that had nothing to do is withdrawn instead, unless somebody asked for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from watchtest.core.events import (
    Collected,
    Event,
    Judged,
    RunEnded,
    Selected,
    SnapshotTaken,
    TestsEnded,
    Unchanged,
    changed,
)
from watchtest.core.model import All, Lane, Result, Run, RunState, Snapshot, Trigger
from watchtest.core.state import Asked, Executing, LaneState, State, Syncing, Working
from watchtest.core.verdict import blamed
from watchtest.history.store.columns import AttemptKind

LEFT = "the watcher left"
LEFT_BEFORE = "the watcher left before it began"
NOTHING_NEW = "nothing had changed"


@dataclass(frozen=True, slots=True)
class Queue:
    """It is accepted."""

    run: Run
    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class Start:
    """Its turn has come: syncing. What it selects is decided now."""

    run: Run
    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class Take:
    """The tree and the environment that it is about."""

    run: str
    at: float
    snapshot: Snapshot
    environment: str


@dataclass(frozen=True, slots=True)
class Choose:
    """What it will run, now that its tree is known."""

    run: Run
    at: float


@dataclass(frozen=True, slots=True)
class Execute:
    """The box is ready, the runner at work: running."""

    run: str
    at: float


@dataclass(frozen=True, slots=True)
class Report:
    """The runner says which tests it will run: it has started."""

    run: str
    at: float


@dataclass(frozen=True, slots=True)
class Add:
    run: str
    at: float
    results: tuple[Result, ...]
    kind: AttemptKind = AttemptKind.WORD


@dataclass(frozen=True, slots=True)
class Doubt:
    """Of these tests it was seen that they pass and fail by chance."""

    run: str
    at: float
    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class End:
    run: str
    at: float
    state: RunState
    reason: str
    raw_output: str = ""


@dataclass(frozen=True, slots=True)
class Withdraw:
    run: str


Deed = Queue | Start | Take | Choose | Execute | Report | Add | Doubt | End | Withdraw


def deeds(before: State, after: State, event: Event | None, now: float) -> Iterator[Deed]:
    """In their order. Without an event: the watcher leaves `before`, and what it leaves open ends now."""
    if event is None:
        for lane in before.lanes.values():
            yield from _left(lane, now)
        return
    was, is_ = before.lanes[event.lane], after.lanes[event.lane]
    if isinstance(was.activity, Working):
        yield from _of_the_run(was.activity, is_, event)
    waited = {asked.id for lane in before.lanes.values() for asked in lane.asked}
    for asked in is_.asked:
        if asked.id not in waited:
            yield _queue(asked, is_.lane)
    for dropped in is_.dropped:
        if dropped.asked.id not in waited:
            yield _queue(dropped.asked, is_.lane)
        yield End(dropped.asked.id, event.at, RunState.CANCELLED, dropped.reason)
    # An event of one lane may let another start.
    for lane in after.ranked:
        if isinstance(lane.activity, Working) and lane.runs != before.lanes[lane.lane].runs:
            yield from _started(lane.activity, before.lanes[lane.lane], waited)


def _queue(asked: Asked, lane: Lane) -> Queue:
    selection = asked.selection or All(because="what it runs is decided when it begins")
    return Queue(Run(asked.id, lane, Trigger.MANUAL, selection, is_forced=True), asked.at, asked.reason)


def _started(working: Working, before: LaneState, waited: set[str]) -> Iterator[Deed]:
    run = working.run
    reason = "asked for" if run.is_forced else changed(working.carried.paths)
    if run.id not in waited:
        yield Queue(run, working.since, reason)
    yield Start(run, working.since, before.waits_for and f"waited: {before.waits_for}")


def _of_the_run(working: Working, now: LaneState, event: Event) -> Iterator[Deed]:
    """Only of the run that was under way: what comes after its end is not its own any more."""
    run = working.run.id
    match event:
        case SnapshotTaken(run=of) if of == run:
            yield Take(run, event.at, event.snapshot, event.environment)
        case Selected(run=of) if of == run:
            yield Choose(replace(working.run, selection=event.selection), event.at)
        case Collected(run=of) if of == run:
            if isinstance(working.phase, Syncing):
                yield Execute(run, event.at)
            if event.tests and not (isinstance(working.phase, Executing) and working.phase.promised):
                yield Report(run, event.at)
        case TestsEnded(run=of) if of == run:
            if isinstance(working.phase, Syncing):
                yield Execute(run, event.at)
            yield Add(run, event.at, event.results, AttemptKind.CHECK if event.is_check else AttemptKind.WORD)
        case RunEnded(run=of, ending=Unchanged()) if of == run:
            if working.run.is_forced:
                yield End(run, event.at, RunState.CANCELLED, NOTHING_NEW)
            else:
                yield Withdraw(run)
        case RunEnded(run=of) if of == run and now.last is not None:
            yield from _untold(working, event)
            yield End(run, event.at, now.last.state, now.last.reason, now.last.raw_output)
        case _:
            pass


def _untold(working: Working, event: RunEnded) -> Iterator[Deed]:
    """The test in which the process ended could not report on itself."""
    if isinstance(event.ending, Judged):
        told = working.phase.results if isinstance(working.phase, Executing) else {}
        results = tuple(result for result in blamed(event.ending.execution) if result != told.get(result.test))
        if results:
            yield Add(working.run.id, event.at, results, AttemptKind.BLAME)
        if event.ending.execution.by_chance:
            yield Doubt(working.run.id, event.at, event.ending.execution.by_chance)


def _left(lane: LaneState, now: float) -> Iterator[Deed]:
    if isinstance(lane.activity, Working):
        yield End(lane.activity.run.id, now, RunState.CANCELLED, LEFT)
    for asked in lane.asked:
        yield End(asked.id, now, RunState.CANCELLED, LEFT_BEFORE)
