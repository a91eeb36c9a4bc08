"""The one place that decides: `step(state, event) -> (state, effects)`. Pure.

The rules, in the words of the laws:
1. A change waits in `pending`, travels with a run as `changes`, and is dropped only when a run that contained it has
   been judged on every test the change can affect. A run that was halted, or that broke, gives its changes back.
2. Knowledge changes by `learn` alone, and only from a judged run.
3. A lane works on one run at a time; what comes meanwhile waits, or ends that run first (`on_change`).
4. A run that was accepted under an id reaches one end: it ends, or it is dropped before it began.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from watchtest.core.audit import audit_if_due
from watchtest.core.events import (
    BoxConnected,
    BoxLost,
    CancelRequested,
    CompareSource,
    Effects,
    Event,
    Leave,
    NoteAdded,
    PauseRequested,
    PolicyRequested,
    QuitRequested,
    ResumeRequested,
    RunEnded,
    RunRequested,
    SelectionMade,
    ServicesChanged,
    SnapshotTaken,
    SourceBlocked,
    SourceChanged,
    SourceCompared,
    StartRun,
    StopRun,
    TestsCollected,
    TestsEnded,
    TimerFired,
    describe_changes,
)
from watchtest.core.model import Lane, OnChange, Policy, Run, Snapshot, StopReason, Trigger
from watchtest.core.policy import policy_selection
from watchtest.core.retry import RETRY_LIMIT, RETRY_LIMIT_ONCE, clear_problem, lose_box, release, retry_if_due
from watchtest.core.run_end import end_run
from watchtest.core.run_queue import BEFORE_IT_BEGAN, LEAVING, allot_id, drop_queued, enqueue
from watchtest.core.state import (
    NOTES_KEPT,
    Broken,
    Executing,
    Idle,
    LaneNote,
    LaneState,
    PendingChanges,
    State,
    Stopped,
    Syncing,
    Working,
)
from watchtest.core.supersede import is_superseded


def step(state: State, event: Event) -> tuple[State, Effects]:
    """The state after `event`, and what the loop has to do about it."""
    lane = state.lanes[event.lane]
    if isinstance(lane.activity, Stopped):
        return state, ()
    lane = replace(lane, dropped=())
    if isinstance(event, RunRequested) and state.is_leaving:
        return replace(state, lanes={**state.lanes, event.lane: enqueue(lane, event, is_leaving=True)}), ()
    after, effects = _react(lane, event, RETRY_LIMIT_ONCE if state.once else RETRY_LIMIT)
    state = replace(state, lanes={**state.lanes, event.lane: after})
    state, starts = _start_what_can(state, event.at)
    effects = (*effects, *starts)
    if isinstance(event, QuitRequested) or (state.once and _has_come_to_an_end(state)):
        return replace(state, is_leaving=True), (*effects, Leave())
    return state, effects


def _has_come_to_an_end(state: State) -> bool:
    return all(
        (isinstance(lane.activity, Idle) and lane.last is not None)
        or (isinstance(lane.activity, Broken) and lane.activity.retry_at is None)
        for lane in state.lanes.values()
    )


# -- starting --------------------------------------------------------------------------------------


def _start_what_can(state: State, at: float) -> tuple[State, Effects]:
    """Start every lane that has something to run, the highest first; a lower one waits while a higher is at work."""
    effects: Effects = ()
    lanes = dict(state.lanes)
    at_work: Lane | None = None
    for lane in state.ranked:
        if _wants_to_start(lane) and not lane.blocked_by:
            if at_work is None:
                lane, start = _started(lane, at)
                effects = (*effects, start)
            else:
                lane = replace(lane, waits_for=f"the {at_work.value} lane goes first")
        elif not _wants_to_start(lane):
            lane = replace(lane, waits_for="")
        else:
            lane = replace(lane, waits_for=lane.blocked_by)
        lanes[lane.lane] = lane
        if isinstance(lane.activity, Working):
            at_work = at_work or lane.lane
    return replace(state, lanes=lanes), effects


def _wants_to_start(lane: LaneState) -> bool:
    match lane.activity:
        case Idle(is_held=False) | Broken(is_due=True):
            has_work = bool(lane.asked) or (bool(lane.pending) and lane.effective_policy is not Policy.OFF)
            return has_work and not lane.is_paused
        case _:
            return False


def _started(lane: LaneState, at: float) -> tuple[LaneState, StartRun]:
    asked = lane.asked[0] if lane.asked else None
    selection = (asked.selection if asked else None) or policy_selection(lane.effective_policy, lane.knowledge)
    lane, allotted = (lane, asked.id) if asked else allot_id(lane)
    run = Run(
        id=allotted,
        lane=lane.lane,
        trigger=Trigger.MANUAL if asked and not asked.is_audit else Trigger(lane.lane.value),
        selection=selection,
        is_forced=asked is not None,
        is_audit=asked is not None and asked.is_audit,
        is_narrowable=lane.effective_policy is Policy.AFFECTED and asked is None,
    )
    broken = lane.activity if isinstance(lane.activity, Broken) else None
    working = Working(
        run=run,
        changes=lane.pending,
        since=at,
        attempt=broken.attempt if broken else 0,
        problem=broken.problem if broken else None,
    )
    known = lane.knowledge.snapshot if lane.knowledge.is_complete else None
    judged = {test: what.result for test, what in lane.knowledge.tests.items()}
    start = StartRun(
        run,
        lane.pending.paths,
        known,
        lane.knowledge.box,
        {**judged, **lane.unjudged_results},
        judged,
        base=lane.knowledge.base,
        must_run=lane.knowledge.must_run,
    )
    rest = lane.asked[1:]
    return replace(
        lane, activity=working, pending=PendingChanges(), asked=rest, runs=lane.runs + 1, waits_for=""
    ), start


# -- reacting --------------------------------------------------------------------------------------


def _react(lane: LaneState, event: Event, retry_limit: int) -> tuple[LaneState, Effects]:
    match event:
        case SourceChanged():
            lane = release(replace(lane, pending=lane.pending.and_also(PendingChanges(event.paths, event.at))))
            if _waits_for_a_service(lane):
                return _stop(lane, StopReason.SUPERSEDED, describe_changes(event.paths))
            return lane, _peek(lane, event.paths)
        case SourceCompared():
            is_of_it = isinstance(lane.activity, Working) and lane.activity.run.id == event.run
            if is_of_it and is_superseded(lane, event.paths):
                return _stop(lane, StopReason.SUPERSEDED, describe_changes(event.paths))
            return lane, ()
        case SourceBlocked():
            return replace(lane, blocked_by=event.reason), ()
        case RunRequested():
            return release(enqueue(lane, event)), ()
        case CancelRequested():
            return _cancel(lane, event)
        case PauseRequested():
            return replace(lane, is_paused=True), ()
        case ResumeRequested():
            return release(replace(lane, is_paused=False)), ()
        case PolicyRequested():
            return replace(lane, override=None if event.policy is lane.policy else event.policy), ()
        case QuitRequested():
            lane, effects = _stop(lane, StopReason.CANCELLED, LEAVING)
            return replace(lane, is_paused=True), effects
        case TimerFired():
            return audit_if_due(retry_if_due(lane, event.at), event.at), ()
        case NoteAdded():
            return _noted(lane, event), ()
        case BoxConnected():
            return replace(clear_problem(lane), box=event.box), ()
        case BoxLost():
            return lose_box(replace(lane, services=()), event)
        case ServicesChanged():
            return replace(lane, services=event.services), ()
        case SnapshotTaken() | SelectionMade() | TestsCollected() | TestsEnded():
            return _follow(lane, event)
        case RunEnded():
            return end_run(lane, event, retry_limit)
        case _:
            assert_never(event)


def _noted(lane: LaneState, event: NoteAdded) -> LaneState:
    if not event.is_kept:
        return replace(lane, note=event.text)
    others = tuple(note for note in lane.notes if note.text != event.text)
    return replace(lane, notes=(*others, LaneNote(event.at, event.text))[-NOTES_KEPT:])


def _waits_for_a_service(lane: LaneState) -> bool:
    """The very save that mends a crashing server must not wait for its last crash."""
    match lane.activity:
        case Working(phase=Syncing(), stop=None):
            return any(service.state in ("starting", "backoff") for service in lane.services)
        case _:
            return False


def _cancel(lane: LaneState, event: CancelRequested) -> tuple[LaneState, Effects]:
    """The run of that name, wherever it is; without a name the one under way, be it between two attempts."""
    working = lane.activity if isinstance(lane.activity, Working) else None
    if event.run and (working is None or working.run.id != event.run):
        return drop_queued(lane, event.run, BEFORE_IT_BEGAN), ()
    if isinstance(lane.activity, Broken) and lane.asked:
        lane = drop_queued(lane, lane.asked[0].id, "cancelled between two attempts")
    return _stop(lane, StopReason.KILLED if event.is_kill else StopReason.CANCELLED, "by command")


def _peek(lane: LaneState, paths: frozenset[str]) -> Effects:
    """What comes while the tests run is looked at first. Before, a change only waits: setup is not thrown away."""
    match lane.activity:
        case Working(phase=Executing(), stop=None, snapshot=Snapshot() as snapshot, run=run) if paths:
            return () if lane.on_change is OnChange.QUEUE else (CompareSource(lane.lane, run.id, paths, snapshot),)
        case _:
            return ()


def _stop(lane: LaneState, stop: StopReason, reason: str) -> tuple[LaneState, Effects]:
    match lane.activity:
        case Working() as working:
            # A second, harder word is passed on; a softer one after it is not.
            if working.stop is StopReason.KILLED or working.stop is stop:
                return lane, ()
            stopped = replace(working, stop=stop, stop_reason=reason)
            return replace(lane, activity=stopped), (StopRun(lane.lane, working.run.id, stop),)
        case Broken() as broken:
            return replace(lane, activity=replace(broken, retry_at=None, is_due=False)), ()
        case _:
            return lane, ()


def _follow(
    lane: LaneState, event: SnapshotTaken | SelectionMade | TestsCollected | TestsEnded
) -> tuple[LaneState, Effects]:
    working = lane.activity
    if not isinstance(working, Working) or working.run.id != event.run:
        return lane, ()
    phase = working.phase if isinstance(working.phase, Executing) else Executing(since=event.at)
    match event:
        case SnapshotTaken():
            return replace(lane, activity=replace(working, snapshot=event.snapshot)), ()
        case SelectionMade():
            run = replace(working.run, selection=event.selection)
            return replace(lane, activity=replace(working, run=run)), ()
        case TestsCollected():
            phase = replace(phase, promised=phase.promised | event.tests)
        case TestsEnded():
            phase = replace(phase, results={**phase.results, **{result.test: result for result in event.results}})
        case _:
            assert_never(event)
    after = replace(lane, activity=replace(working, phase=phase), note="")
    # What changed while the box was made ready is weighed now.
    return after, _peek(after, lane.pending.paths) if isinstance(working.phase, Syncing) else ()


def leave(state: State) -> State:
    """The last state of all: every lane stopped, what was under way given back and never called judged."""
    return replace(state, is_leaving=True, lanes={name: _left(lane) for name, lane in state.lanes.items()})


def _left(lane: LaneState) -> LaneState:
    carried = lane.activity.changes if isinstance(lane.activity, Working) else PendingChanges()
    return replace(lane, activity=Stopped(), pending=lane.pending.and_also(carried), asked=(), dropped=())
