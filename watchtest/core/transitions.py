"""Derives the facts of a step from the state before it, the event, and the state after it. Pure.

Views, the history, the API and the metrics all report these facts, so that they agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from watchtest.core import events, model
from watchtest.core.run_queue import REQUESTED
from watchtest.core.state import (
    Broken,
    Build,
    Executing,
    FinishedRun,
    LaneState,
    QueuedRun,
    Starting,
    State,
    Syncing,
    Working,
)
from watchtest.core.verdict import blamed_tests

STOPPED = "the watcher stopped"
STOPPED_BEFORE = "the watcher stopped before it began"
NOTHING_NEW = "nothing had changed"
UNDECIDED = "decided when it begins"


@dataclass(frozen=True, slots=True)
class LaneFact:
    """Something happened to a lane."""

    lane: model.Lane


@dataclass(frozen=True, slots=True)
class RunFact:
    """Something happened to a run."""

    run: model.Run

    @property
    def lane(self) -> model.Lane:
        return self.run.lane


Fact = LaneFact | RunFact


# -- what happens to a lane ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FilesChanged(LaneFact):
    """The source of the lane changed, or may have changed."""

    paths: frozenset[str]
    is_start: bool
    """The watcher has just started and looks at everything."""


@dataclass(frozen=True, slots=True)
class SourceBlockChanged(LaneFact):
    """Git lanes have to wait, for example during a rebase; an empty reason means that they go on."""

    reason: str


@dataclass(frozen=True, slots=True)
class RunRequestAnswered(LaneFact):
    """A run was requested, and accepted or refused."""

    run: str
    refusal: str
    """Why no run was accepted; empty if one was."""


@dataclass(frozen=True, slots=True)
class CancelRequestAnswered(LaneFact):
    """The user cancelled a run."""

    run: str
    is_kill: bool
    effect: Literal["stop", "drop", "none"]
    """The run is stopping, was taken out of the queue, or there was nothing to cancel."""


@dataclass(frozen=True, slots=True)
class LanePaused(LaneFact):
    """The lane starts no more runs until it is resumed."""


@dataclass(frozen=True, slots=True)
class LaneResumed(LaneFact):
    """The lane starts runs again."""


@dataclass(frozen=True, slots=True)
class PolicyChanged(LaneFact):
    """The user changed what a change runs."""

    configured: model.Policy
    override: model.Policy | None


@dataclass(frozen=True, slots=True)
class RetryBegan(LaneFact):
    """A lane that was broken tries again by itself."""


@dataclass(frozen=True, slots=True)
class LaneWaits(LaneFact):
    """A lane cannot start its next run yet."""

    reason: str


@dataclass(frozen=True, slots=True)
class NoteShown(LaneFact):
    """There is a message for the user."""

    text: str
    is_repeated: bool


@dataclass(frozen=True, slots=True)
class BoxChanged(LaneFact):
    """The box has a new state."""

    box: model.BoxInfo


@dataclass(frozen=True, slots=True)
class BoxDisappeared(LaneFact):
    """The connection to the box was lost."""

    problem: model.Problem
    broken: Broken | None
    """The state that the lane is in because of it; None if the lane had noticed already."""


@dataclass(frozen=True, slots=True)
class ServiceChanged(LaneFact):
    """A service of the box has a new state."""

    service: model.ServiceInfo


@dataclass(frozen=True, slots=True)
class BuildChanged(LaneFact):
    """The build of a clean environment began, failed, ended, or is no longer needed."""

    build: Build | None
    is_ready: bool


@dataclass(frozen=True, slots=True)
class WatcherLeaves(LaneFact):
    """The watcher stops."""


# -- what happens to a run -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunQueued(RunFact):
    """A run was accepted."""

    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class RunStarted(RunFact):
    """A run has begun to bring the box up to date."""

    at: float
    queued_at: float | None
    """When it was accepted, if it had to wait in the queue."""
    waited_for: str


@dataclass(frozen=True, slots=True)
class TreeTaken(RunFact):
    """The snapshot that a run is about is known."""

    snapshot: model.Snapshot
    environment: str
    after_s: float
    """Seconds since the run began."""


@dataclass(frozen=True, slots=True)
class TestsSelected(RunFact):
    """The tests of a run are selected."""


@dataclass(frozen=True, slots=True)
class TestsBegan(RunFact):
    """The box is ready and the runner is at work."""


@dataclass(frozen=True, slots=True)
class TestsPromised(RunFact):
    """The runner has reported for the first time which tests it will run."""

    total: int


@dataclass(frozen=True, slots=True)
class ResultsArrived(RunFact):
    """Tests of a run have ended."""

    results: tuple[model.Result, ...]
    is_check: bool
    """They come from a second run in a fresh process, which confirms the first."""
    confirmed: frozenset[str]
    """The tests that failed in the first run, too."""


@dataclass(frozen=True, slots=True)
class FailuresDoubted(RunFact):
    """The failures of a run are being confirmed by a second run in a fresh process."""

    failures: int


@dataclass(frozen=True, slots=True)
class RunStopping(RunFact):
    """A run is being stopped before its end."""

    stop: model.StopReason
    reason: str


@dataclass(frozen=True, slots=True)
class RunFinished(RunFact):
    """A run has ended, with a verdict or without."""

    finished: FinishedRun
    ending: events.Ending
    tests_since: float | None
    """When its tests began; None if they never did."""
    tree: str | None
    reported: Mapping[str, model.Result]
    """The results of this run that `ResultsArrived` has reported."""

    @property
    def unreported(self) -> Iterator[model.Result]:
        """Yield results not reported yet: files that could not be collected, tests in which a process ended."""
        if isinstance(self.ending, events.Judged):
            errors = {result.test: result for result in self.ending.execution.collection_errors}
            for test, result in (errors | dict(self.finished.results)).items():
                if self.reported.get(test) != result:
                    yield result

    @property
    def crashed_in(self) -> tuple[model.Result, ...]:
        """Return the tests in which a process ended, so that they could not report themselves."""
        if not isinstance(self.ending, events.Judged):
            return ()
        found = blamed_tests(self.ending.execution)
        return tuple(result for result in found if result != self.reported.get(result.test))


@dataclass(frozen=True, slots=True)
class RunWithdrawn(RunFact):
    """A run found that no content had changed since the last verdict."""

    tree: str
    started_at: float


@dataclass(frozen=True, slots=True)
class RunDropped(RunFact):
    """A run that was waiting will never begin."""

    queued_at: float
    reason: str


def facts_of(before: State, after: State, event: events.Event) -> Iterator[Fact]:
    """Yield the facts of one step, in the order in which they happened."""
    was, now = before.lanes[event.lane], after.lanes[event.lane]
    yield from _lane_facts(was, now, event)
    if isinstance(was.activity, Working):
        yield from _run_facts(was.activity, now, event)
    queued = {request.id: request.at for lane in before.lanes.values() for request in lane.queue.waiting}
    for request in now.queue.waiting:
        if request.id not in queued:
            yield RunQueued(requested_run(request, now.lane), request.at, request.reason)
    for dropped in now.queue.dropped:
        run = requested_run(dropped.run, now.lane)
        if dropped.run.id not in queued:
            yield RunQueued(run, dropped.run.at, dropped.run.reason)
        yield RunDropped(run, dropped.run.at, dropped.reason)
    if now.build != was.build:
        is_ready = isinstance(event, events.EnvironmentBuilt) and now.build is None
        yield BuildChanged(event.lane, now.build, is_ready)
    for lane in after.ranked:  # an event of one lane may let another start
        yield from _start_facts(before.lanes[lane.lane], lane, queued)
    if after.is_leaving and not before.is_leaving:
        yield WatcherLeaves(event.lane)


def unfinished(state: State) -> Iterator[tuple[model.Run, str]]:
    """Yield the runs without an end when the watcher stops, each with the reason."""
    for lane in state.lanes.values():
        if isinstance(lane.activity, Working):
            yield lane.activity.run, STOPPED
        for request in lane.queue.waiting:
            yield requested_run(request, lane.lane), STOPPED_BEFORE


def requested_run(request: QueuedRun, lane: model.Lane) -> model.Run:
    """Return the run that a waiting request will become."""
    selection = request.selection or model.All(because=UNDECIDED)
    return model.Run(request.id, lane, model.Trigger.MANUAL, selection, is_forced=True)


def _lane_facts(was: LaneState, now: LaneState, event: events.Event) -> Iterator[LaneFact]:
    lane = event.lane
    match event:
        case events.SourceChanged(paths=paths):
            yield FilesChanged(lane, paths, is_start=isinstance(was.activity, Starting))
        case events.SourceBlocked(reason=reason):
            if reason != was.blocked_by:
                yield SourceBlockChanged(lane, reason)
        case events.RunRequested():
            is_refused = bool(now.notes.current) and now.notes.current != was.notes.current
            yield RunRequestAnswered(lane, event.id, now.notes.current if is_refused else "")
        case events.CancelRequested():
            yield _cancel_fact(was, now, event)
        case events.PauseRequested():
            yield LanePaused(lane)
        case events.ResumeRequested():
            yield LaneResumed(lane)
        case events.PolicyRequested():
            yield PolicyChanged(lane, now.policy, now.policy_override)
        case events.TimerFired():
            if now.runs.started != was.runs.started:
                yield RetryBegan(lane)
        case events.NoteAdded(text=text, is_kept=is_kept):
            if text:
                yield NoteShown(lane, text, is_repeated=text == was.notes.current and not is_kept)
        case events.BoxConnected(box=box):
            if box != was.box.info:
                yield BoxChanged(lane, box)
        case events.BoxLost(problem=problem):
            broken = now.activity if isinstance(now.activity, Broken) and now.activity is not was.activity else None
            yield BoxDisappeared(lane, problem, broken)
        case events.ServicesChanged():
            before = {service.name: (service.state, service.restarts) for service in was.box.services}
            for service in now.box.services:
                if before.get(service.name) != (service.state, service.restarts):
                    yield ServiceChanged(lane, service)
        case events.RunEvent() | events.QuitRequested() | events.EnvironmentChecked() | events.EnvironmentBuilt():
            pass
        case _:
            assert_never(event)


def _cancel_fact(was: LaneState, now: LaneState, event: events.CancelRequested) -> CancelRequestAnswered:
    current = was.activity.run.id if isinstance(was.activity, Working) else ""
    is_stopping = event.run in ("", current) if current else isinstance(was.activity, Broken) and not event.run
    effect: Literal["stop", "drop", "none"] = "stop" if is_stopping else "drop" if now.queue.dropped else "none"
    return CancelRequestAnswered(event.lane, event.run or current, event.is_kill, effect)


def _run_facts(working: Working, now: LaneState, event: events.Event) -> Iterator[RunFact]:
    """Yield the facts about the current run. Reports of a run that has ended are ignored."""
    run = working.run
    if isinstance(now.activity, Working) and now.activity.run.id == run.id:
        stop = now.activity.stop
        if stop is not None and stop != working.stop:
            yield RunStopping(run, stop.reason, stop.because)
    if not isinstance(event, events.RunEvent) or event.run != run.id:
        return
    match event:
        case events.SnapshotTaken():
            yield TreeTaken(run, event.snapshot, event.environment, event.at - working.since)
        case events.SelectionMade():
            yield TestsSelected(replace(run, selection=event.selection))
        case events.TestsCollected():
            if isinstance(working.phase, Syncing):
                yield TestsBegan(run)
            if event.tests and not _promised(working):
                yield TestsPromised(run, _promised(now.activity))
        case events.TestsEnded():
            if isinstance(working.phase, Syncing):
                yield TestsBegan(run)
            earlier = working.phase.results if event.is_check and isinstance(working.phase, Executing) else {}
            red = [result.test for result in event.results if result.outcome.is_red]
            confirmed = frozenset(test for test in red if test in earlier and earlier[test].outcome.is_red)
            yield ResultsArrived(run, event.results, event.is_check, confirmed)
        case events.ConfirmationBegan(failures=failures):
            yield FailuresDoubted(run, failures)
        case events.RunEnded(ending=events.Unchanged(snapshot=snapshot)):
            yield RunWithdrawn(run, snapshot.id, working.since)
        case events.RunEnded() if now.runs.last is not None:
            finished = now.runs.last
            tests_since = working.phase.since if isinstance(working.phase, Executing) else None
            tree = working.snapshot.id if working.snapshot else None
            yield RunFinished(finished.run, finished, event.ending, tests_since, tree, working.results)
        case _:
            pass


def _promised(activity: object) -> int:
    phase = activity.phase if isinstance(activity, Working) else None
    return len(phase.promised) if isinstance(phase, Executing) else 0


def _start_facts(was: LaneState, now: LaneState, queued: dict[str, float]) -> Iterator[Fact]:
    if isinstance(now.activity, Working) and now.runs.started != was.runs.started:
        working, run = now.activity, now.activity.run
        if run.id not in queued:
            reason = REQUESTED if run.is_forced else events.describe_changes(working.changes.paths)
            yield RunQueued(run, working.since, reason)
        waited_for = was.waits_for and f"waited: {was.waits_for}"
        yield RunStarted(run, working.since, queued.get(run.id), waited_for)
    elif now.waits_for and now.waits_for != was.waits_for:
        yield LaneWaits(now.lane, now.waits_for)
