"""The one place that decides: `step(state, event) -> (state, effects)`. Pure.

The rules, in the words of the laws:
1. A change waits in `pending`, travels with a run as `carried`, and is dropped only when a run that contained it has
   been judged on every test the change can affect. A run that was halted, or that broke, gives its changes back.
2. Knowledge changes by `learn` alone, and only from a judged run.
3. A lane works on one run at a time; what comes meanwhile waits, or ends that run first (`on_change`).
4. A run that was accepted under an id reaches one end: it ends, or it is dropped before it began.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from watchtest.core.audit import woken
from watchtest.core.events import (
    BoxLost,
    BoxSeen,
    CancelAsked,
    Changed,
    Collected,
    Effects,
    Event,
    Hindered,
    Leave,
    Noted,
    PauseAsked,
    Peek,
    Peeked,
    PolicyAsked,
    QuitAsked,
    ResumeAsked,
    RunAsked,
    RunEnded,
    Selected,
    ServicesSeen,
    SnapshotTaken,
    StartRun,
    StopRun,
    TestsEnded,
    Woke,
    changed,
)
from watchtest.core.model import Lane, OnChange, Policy, Run, Snapshot, Stop, Trigger
from watchtest.core.policy import choose
from watchtest.core.retry import RETRY_LIMIT, RETRY_LIMIT_ONCE, healed, lost, release, wake
from watchtest.core.run_end import ended
from watchtest.core.run_queue import BEFORE_IT_BEGAN, LEAVING, accepted, called_off, with_id
from watchtest.core.state import (
    NOTES_KEPT,
    Broken,
    Executing,
    Idle,
    LaneState,
    Pending,
    Said,
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
    if isinstance(event, RunAsked) and state.is_leaving:
        return replace(state, lanes={**state.lanes, event.lane: accepted(lane, event, is_leaving=True)}), ()
    after, effects = _react(lane, event, RETRY_LIMIT_ONCE if state.once else RETRY_LIMIT)
    state = replace(state, lanes={**state.lanes, event.lane: after})
    state, starts = _start_what_can(state, event.at)
    effects = (*effects, *starts)
    if isinstance(event, QuitAsked) or (state.once and _has_come_to_an_end(state)):
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
        if _wants_to_start(lane) and not lane.hindrance:
            if at_work is None:
                lane, start = _started(lane, at)
                effects = (*effects, start)
            else:
                lane = replace(lane, waits_for=f"the {at_work.value} lane goes first")
        elif not _wants_to_start(lane):
            lane = replace(lane, waits_for="")
        else:
            lane = replace(lane, waits_for=lane.hindrance)
        lanes[lane.lane] = lane
        if isinstance(lane.activity, Working):
            at_work = at_work or lane.lane
    return replace(state, lanes=lanes), effects


def _wants_to_start(lane: LaneState) -> bool:
    match lane.activity:
        case Idle(is_held=False) | Broken(is_due=True):
            has_work = bool(lane.asked) or (bool(lane.pending) and lane.present_policy is not Policy.OFF)
            return has_work and not lane.is_paused
        case _:
            return False


def _started(lane: LaneState, at: float) -> tuple[LaneState, StartRun]:
    asked = lane.asked[0] if lane.asked else None
    selection = (asked.selection if asked else None) or choose(lane.present_policy, lane.knowledge)
    lane, allotted = (lane, asked.id) if asked else with_id(lane)
    run = Run(
        id=allotted,
        lane=lane.lane,
        trigger=Trigger.MANUAL if asked and not asked.is_audit else Trigger(lane.lane.value),
        selection=selection,
        is_forced=asked is not None,
        is_audit=asked is not None and asked.is_audit,
        is_narrowable=lane.present_policy is Policy.AFFECTED and asked is None,
    )
    broken = lane.activity if isinstance(lane.activity, Broken) else None
    working = Working(
        run=run,
        carried=lane.pending,
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
        {**judged, **lane.partial},
        judged,
        base=lane.knowledge.base,
        unsure=lane.knowledge.unsure,
    )
    rest = lane.asked[1:]
    return replace(lane, activity=working, pending=Pending(), asked=rest, runs=lane.runs + 1, waits_for=""), start


# -- reacting --------------------------------------------------------------------------------------


def _react(lane: LaneState, event: Event, retry_limit: int) -> tuple[LaneState, Effects]:
    match event:
        case Changed():
            lane = release(replace(lane, pending=lane.pending.and_also(Pending(event.paths, event.at))))
            if _waits_for_a_service(lane):
                return _stop(lane, Stop.SUPERSEDED, changed(event.paths))
            return lane, _peek(lane, event.paths)
        case Peeked():
            is_of_it = isinstance(lane.activity, Working) and lane.activity.run.id == event.run
            if is_of_it and is_superseded(lane, event.paths):
                return _stop(lane, Stop.SUPERSEDED, changed(event.paths))
            return lane, ()
        case Hindered():
            return replace(lane, hindrance=event.reason), ()
        case RunAsked():
            return release(accepted(lane, event)), ()
        case CancelAsked():
            return _cancel(lane, event)
        case PauseAsked():
            return replace(lane, is_paused=True), ()
        case ResumeAsked():
            return release(replace(lane, is_paused=False)), ()
        case PolicyAsked():
            return replace(lane, override=None if event.policy is lane.policy else event.policy), ()
        case QuitAsked():
            lane, effects = _stop(lane, Stop.CANCELLED, LEAVING)
            return replace(lane, is_paused=True), effects
        case Woke():
            return woken(wake(lane, event.at), event.at), ()
        case Noted():
            return _noted(lane, event), ()
        case BoxSeen():
            return replace(healed(lane), box=event.box), ()
        case BoxLost():
            return lost(replace(lane, services=()), event)
        case ServicesSeen():
            return replace(lane, services=event.services), ()
        case SnapshotTaken() | Selected() | Collected() | TestsEnded():
            return _follow(lane, event)
        case RunEnded():
            return ended(lane, event, retry_limit)
        case _:
            assert_never(event)


def _noted(lane: LaneState, event: Noted) -> LaneState:
    if not event.is_kept:
        return replace(lane, note=event.text)
    others = tuple(note for note in lane.notes if note.text != event.text)
    return replace(lane, notes=(*others, Said(event.at, event.text))[-NOTES_KEPT:])


def _waits_for_a_service(lane: LaneState) -> bool:
    """The very save that mends a crashing server must not wait for its last crash."""
    match lane.activity:
        case Working(phase=Syncing(), stop=None):
            return any(service.state in ("starting", "backoff") for service in lane.services)
        case _:
            return False


def _cancel(lane: LaneState, event: CancelAsked) -> tuple[LaneState, Effects]:
    """The run of that name, wherever it is; without a name the one under way, be it between two attempts."""
    working = lane.activity if isinstance(lane.activity, Working) else None
    if event.run and (working is None or working.run.id != event.run):
        return called_off(lane, event.run, BEFORE_IT_BEGAN), ()
    if isinstance(lane.activity, Broken) and lane.asked:
        lane = called_off(lane, lane.asked[0].id, "cancelled between two attempts")
    return _stop(lane, Stop.KILLED if event.is_kill else Stop.CANCELLED, "by command")


def _peek(lane: LaneState, paths: frozenset[str]) -> Effects:
    """What comes while the tests run is looked at first. Before, a change only waits: setup is not thrown away."""
    match lane.activity:
        case Working(phase=Executing(), stop=None, snapshot=Snapshot() as snapshot, run=run) if paths:
            return () if lane.on_change is OnChange.QUEUE else (Peek(lane.lane, run.id, paths, snapshot),)
        case _:
            return ()


def _stop(lane: LaneState, stop: Stop, reason: str) -> tuple[LaneState, Effects]:
    match lane.activity:
        case Working() as working:
            # A second, harder word is passed on; a softer one after it is not.
            if working.stop is Stop.KILLED or working.stop is stop:
                return lane, ()
            stopped = replace(working, stop=stop, stop_reason=reason)
            return replace(lane, activity=stopped), (StopRun(lane.lane, working.run.id, stop),)
        case Broken() as broken:
            return replace(lane, activity=replace(broken, retry_at=None, is_due=False)), ()
        case _:
            return lane, ()


def _follow(lane: LaneState, event: SnapshotTaken | Selected | Collected | TestsEnded) -> tuple[LaneState, Effects]:
    working = lane.activity
    if not isinstance(working, Working) or working.run.id != event.run:
        return lane, ()
    phase = working.phase if isinstance(working.phase, Executing) else Executing(since=event.at)
    match event:
        case SnapshotTaken():
            return replace(lane, activity=replace(working, snapshot=event.snapshot)), ()
        case Selected():
            run = replace(working.run, selection=event.selection)
            return replace(lane, activity=replace(working, run=run)), ()
        case Collected():
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
    carried = lane.activity.carried if isinstance(lane.activity, Working) else Pending()
    return replace(lane, activity=Stopped(), pending=lane.pending.and_also(carried), asked=(), dropped=())
