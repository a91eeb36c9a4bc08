"""The one place that decides: `step(state, event) -> (state, effects)`. Pure.

Its laws:
1. A change waits in `pending`, travels with a run as `changes`, and is dropped only when a run that contained it has
   been judged on every test that the change can affect. A run that was halted or broke gives its changes back.
2. Knowledge changes only through `learn`, and only after a judged run.
3. A lane works on one run at a time. A new change waits, or ends that run first (`on_change`).
4. A run that was accepted under an id reaches exactly one end: it ends, or it is dropped before it begins.
5. A provisional green becomes final only by a run of all tests in a clean environment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from watchtest.core import events
from watchtest.core.background_audit import audit_if_due
from watchtest.core.environment_build import follow_build, forget_failed_build, retry_build_if_due
from watchtest.core.model import Lane, OnChange, Policy, Run, Snapshot, StopReason, Trigger
from watchtest.core.policy import policy_selection
from watchtest.core.retry import RETRY_LIMIT, RETRY_LIMIT_ONCE, clear_problem, lose_box, release, retry_if_due
from watchtest.core.run_end import end_run
from watchtest.core.run_queue import BEFORE_IT_BEGAN, LEAVING, allot_id, drop_queued, enqueue
from watchtest.core.state import (
    NOTES_KEPT,
    Broken,
    Executing,
    GivenUp,
    Idle,
    LaneBox,
    LaneNote,
    LaneNotes,
    LaneState,
    PendingChanges,
    RetryAt,
    RetryNow,
    State,
    Stopped,
    StopRequest,
    Syncing,
    Working,
)
from watchtest.core.supersede import is_superseded


def step(state: State, event: events.Event) -> tuple[State, events.Effects]:
    """Return the state after `event`, and the effects that the loop has to perform."""
    lane = state.lanes[event.lane]
    if isinstance(lane.activity, Stopped):
        return state, ()
    lane = replace(lane, queue=replace(lane.queue, dropped=()))
    if isinstance(event, events.RunRequested) and state.is_leaving:
        return replace(state, lanes={**state.lanes, event.lane: enqueue(lane, event, is_leaving=True)}), ()
    after, effects = _react(lane, event, RETRY_LIMIT_ONCE if state.once else RETRY_LIMIT)
    state = replace(state, lanes={**state.lanes, event.lane: after})
    state, starts = _start_ready_lanes(state, event.at)
    effects = (*effects, *starts)
    if isinstance(event, events.QuitRequested) or (state.once and _has_finished_once(state)):
        return replace(state, is_leaving=True), (*effects, events.Leave())
    return state, effects


def _has_finished_once(state: State) -> bool:
    return all(
        (isinstance(lane.activity, Idle) and lane.runs.last is not None)
        or (isinstance(lane.activity, Broken) and not isinstance(lane.activity.retry, RetryAt))
        for lane in state.lanes.values()
    )


# -- starting --------------------------------------------------------------------------------------


def _start_ready_lanes(state: State, at: float) -> tuple[State, events.Effects]:
    """Start the lanes that have work, the highest first. A lower lane waits while a higher one is working."""
    effects: events.Effects = ()
    lanes = dict(state.lanes)
    working: Lane | None = None
    for lane in state.ranked:
        if not _is_ready(lane):
            lane = replace(lane, waits_for="")
        elif lane.blocked_by:
            lane = replace(lane, waits_for=lane.blocked_by)
        elif working is not None:
            lane = replace(lane, waits_for=f"the {working.value} lane goes first")
        else:
            lane, start = _start(lane, at)
            effects = (*effects, start)
        lanes[lane.lane] = lane
        if isinstance(lane.activity, Working):
            working = working or lane.lane
    return replace(state, lanes=lanes), effects


def _is_ready(lane: LaneState) -> bool:
    match lane.activity:
        case Idle(is_held=False) | Broken(retry=RetryNow()):
            return lane.has_work and not lane.is_paused
        case _:
            return False


def _start(lane: LaneState, at: float) -> tuple[LaneState, events.StartRun]:
    queued = lane.queue.waiting[0] if lane.queue else None
    selection = (queued.selection if queued else None) or policy_selection(lane.effective_policy, lane.knowledge)
    lane, run_id = (lane, queued.id) if queued else allot_id(lane)
    run = Run(
        id=run_id,
        lane=lane.lane,
        trigger=Trigger.MANUAL if queued and not queued.is_audit else Trigger(lane.lane.value),
        selection=selection,
        is_forced=queued is not None,
        is_audit=queued is not None and queued.is_audit,
        is_narrowable=lane.effective_policy is Policy.AFFECTED and queued is None,
    )
    broken = lane.activity if isinstance(lane.activity, Broken) else None
    working = Working(
        run=run,
        changes=lane.pending,
        since=at,
        attempt=broken.attempt if broken else 0,
        problem=broken.problem if broken else None,
    )
    start = events.StartRun(run, lane.pending.paths, lane.knowledge, lane.unjudged_results)
    started = replace(
        lane,
        activity=working,
        pending=PendingChanges(),
        queue=replace(lane.queue, waiting=lane.queue.waiting[1:]),
        runs=replace(lane.runs, started=lane.runs.started + 1),
        waits_for="",
    )
    return started, start


# -- reacting --------------------------------------------------------------------------------------


def _react(lane: LaneState, event: events.Event, retry_limit: int) -> tuple[LaneState, events.Effects]:
    match event:
        case events.SourceChanged():
            lane = release(replace(lane, pending=lane.pending | PendingChanges(event.paths, event.at)))
            if _waits_for_a_service(lane):
                return _stop(lane, StopReason.SUPERSEDED, events.describe_changes(event.paths))
            return lane, _compare(lane, event.paths)
        case events.SourceCompared():
            is_current = isinstance(lane.activity, Working) and lane.activity.run.id == event.run
            if is_current and is_superseded(lane, event.paths):
                return _stop(lane, StopReason.SUPERSEDED, events.describe_changes(event.paths))
            return lane, ()
        case events.SourceBlocked():
            return replace(lane, blocked_by=event.reason), ()
        case events.RunRequested():
            return release(enqueue(forget_failed_build(lane), event)), ()
        case events.CancelRequested():
            return _cancel(lane, event)
        case events.PauseRequested():
            return replace(lane, is_paused=True), ()
        case events.ResumeRequested():
            return release(replace(lane, is_paused=False)), ()
        case events.PolicyRequested():
            after = replace(lane, policy_override=None if event.policy is lane.policy else event.policy)
            # Changes that waited under the old policy are tested under the new one.
            return (after if after.effective_policy is lane.effective_policy else release(after)), ()
        case events.QuitRequested():
            lane, effects = _stop(lane, StopReason.CANCELLED, LEAVING)
            return replace(lane, is_paused=True), effects
        case events.TimerFired():
            return retry_build_if_due(audit_if_due(retry_if_due(lane, event.at), event.at), event.at)
        case events.NoteAdded():
            return replace(lane, notes=_with_note(lane.notes, event)), ()
        case events.BoxConnected():
            return replace(clear_problem(lane), box=replace(lane.box, info=event.box)), ()
        case events.BoxLost():
            return lose_box(replace(lane, box=LaneBox(lane.box.info, losses=lane.box.losses)), event)
        case events.ServicesChanged():
            return replace(lane, box=replace(lane.box, services=event.services)), ()
        case events.EnvironmentChecked() | events.EnvironmentBuilt():
            return follow_build(lane, event)
        case events.RunEnded():
            return end_run(lane, event, retry_limit)
        case _:  # events.Progress
            return _follow(lane, event)


def _with_note(notes: LaneNotes, event: events.NoteAdded) -> LaneNotes:
    if not event.is_kept:
        return replace(notes, current=event.text)
    others = tuple(note for note in notes.kept if note.text != event.text)
    return replace(notes, kept=(*others, LaneNote(event.at, event.text))[-NOTES_KEPT:])


def _waits_for_a_service(lane: LaneState) -> bool:
    """Return whether the run waits for a service: the change may be the one that repairs it, so it must not wait."""
    match lane.activity:
        case Working(phase=Syncing(), stop=None):
            return any(service.state in ("starting", "backoff") for service in lane.box.services)
        case _:
            return False


def _cancel(lane: LaneState, event: events.CancelRequested) -> tuple[LaneState, events.Effects]:
    """Cancel the run with that id, active or queued; without an id, the active one, even between two attempts."""
    working = lane.activity if isinstance(lane.activity, Working) else None
    if event.run and (working is None or working.run.id != event.run):
        return drop_queued(lane, event.run, BEFORE_IT_BEGAN), ()
    if isinstance(lane.activity, Broken) and lane.queue:
        lane = drop_queued(lane, lane.queue.waiting[0].id, "cancelled between two attempts")
    return _stop(lane, StopReason.KILLED if event.is_kill else StopReason.CANCELLED, "by command")


def _compare(lane: LaneState, paths: frozenset[str]) -> events.Effects:
    """Compare changes that arrive while the tests run. Earlier changes just wait, so that no setup is thrown away."""
    match lane.activity:
        case Working(phase=Executing(), stop=None, snapshot=Snapshot() as snapshot, run=run) if paths:
            is_queued = lane.settings.on_change is OnChange.QUEUE
            return () if is_queued else (events.CompareSource(lane.lane, run.id, paths, snapshot),)
        case _:
            return ()


def _stop(lane: LaneState, stop: StopReason, because: str) -> tuple[LaneState, events.Effects]:
    match lane.activity:
        case Working() as working:
            # A kill may follow a cancel, but nothing softer follows a kill.
            if working.stop_reason in (StopReason.KILLED, stop):
                return lane, ()
            stopping = replace(working, stop=StopRequest(stop, because))
            return replace(lane, activity=stopping), (events.StopRun(lane.lane, working.run.id, stop),)
        case Broken() as broken:
            return replace(lane, activity=replace(broken, retry=GivenUp())), ()
        case _:
            return lane, ()


def _follow(lane: LaneState, event: events.Progress) -> tuple[LaneState, events.Effects]:
    working = lane.activity
    if not isinstance(working, Working) or working.run.id != event.run:
        return lane, ()
    phase = working.phase if isinstance(working.phase, Executing) else Executing(since=event.at)
    match event:
        case events.SnapshotTaken():
            return replace(lane, activity=replace(working, snapshot=event.snapshot)), ()
        case events.SelectionMade():
            run = replace(working.run, selection=event.selection)
            return replace(lane, activity=replace(working, run=run)), ()
        case events.TestsCollected():
            phase = replace(phase, promised=phase.promised | event.tests)
        case events.TestsEnded():
            latest = {result.test: result for result in event.results}
            red = {test for test, result in latest.items() if result.outcome.is_red}
            phase = replace(phase, results={**phase.results, **latest}, red=(phase.red - latest.keys()) | red)
        case events.ConfirmationBegan():
            phase = replace(phase, confirming=event.failures)
        case _:
            assert_never(event)
    after = replace(lane, activity=replace(working, phase=phase), notes=replace(lane.notes, current=""))
    # Changes that arrived while the box was being prepared are compared now.
    return after, _compare(after, lane.pending.paths) if isinstance(working.phase, Syncing) else ()


def leave(state: State) -> State:
    """Return the last state: every lane has stopped, and the changes of active runs are pending again."""
    return replace(state, is_leaving=True, lanes={name: _left(lane) for name, lane in state.lanes.items()})


def _left(lane: LaneState) -> LaneState:
    changes = lane.activity.changes if isinstance(lane.activity, Working) else PendingChanges()
    queue = replace(lane.queue, waiting=(), dropped=())
    return replace(lane, activity=Stopped(), pending=lane.pending | changes, queue=queue)
