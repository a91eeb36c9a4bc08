"""The one place that decides: `step(state, event) -> (state, effects)`. Pure.

The rules, in the words of the laws:
1. A change waits in `pending`, travels with a run as `carried`, and is dropped only when a run that contained it has
   been judged on every test the change can affect. A run that was halted, or that broke, gives its changes back.
2. Knowledge changes by `learn` alone, and only from a judged run.
3. A lane works on one run at a time; what comes meanwhile waits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from watchtest.core.events import (
    EVERYTHING,
    BoxLost,
    BoxSeen,
    Broke,
    CancelAsked,
    Changed,
    Collected,
    Effect,
    Ending,
    Event,
    Halted,
    Hindered,
    Judged,
    Leave,
    LookAgain,
    Noted,
    PauseAsked,
    QuitAsked,
    ResumeAsked,
    RunAsked,
    RunEnded,
    ServicesSeen,
    SnapshotTaken,
    StartRun,
    StopRun,
    TestsEnded,
    Unchanged,
    WakeAt,
    Woke,
)
from watchtest.core.model import Lane, Policy, Run, RunState, Snapshot, Stop, Trigger
from watchtest.core.selection import choose
from watchtest.core.state import (
    STRIP_LENGTH,
    Asked,
    Broken,
    Executing,
    Finished,
    Idle,
    LaneState,
    Pending,
    Starting,
    State,
    Stopped,
    Working,
)
from watchtest.core.verdict import covers_everything, judge, learn

Effects = tuple[Effect, ...]
RETRY_FIRST_S = 0.5
RETRY_LONGEST_S = 30.0
RETRY_LIMIT = 10
LOSSES_APART_S = 10.0
"""A box that is lost again within this has not really come back."""
LOSS_LONGEST_S = 5.0
RETRY_LIMIT_ONCE = 3


def step(state: State, event: Event) -> tuple[State, Effects]:
    """The state after `event`, and what the loop has to do about it."""
    lane = state.lanes[event.lane]
    if isinstance(lane.activity, Stopped):
        return state, ()
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
            has_work = lane.asked is not None or (bool(lane.pending) and lane.policy is not Policy.OFF)
            return has_work and not lane.is_paused
        case _:
            return False


def _started(lane: LaneState, at: float) -> tuple[LaneState, StartRun]:
    asked = lane.asked
    selection = (asked.selection if asked else None) or choose(lane.policy, lane.knowledge)
    run = Run(
        id=f"{lane.session}.{lane.runs + 1}",
        lane=lane.lane,
        trigger=Trigger.MANUAL if asked else Trigger(lane.lane.value),
        selection=selection,
        is_forced=asked is not None,
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
    start = StartRun(run, lane.pending.paths, known, lane.knowledge.box)
    return replace(lane, activity=working, pending=Pending(), asked=None, runs=lane.runs + 1, waits_for=""), start


# -- reacting --------------------------------------------------------------------------------------


def _react(lane: LaneState, event: Event, retry_limit: int) -> tuple[LaneState, Effects]:
    match event:
        case Changed():
            return _release(replace(lane, pending=lane.pending.and_also(Pending(event.paths, event.at)))), ()
        case Hindered():
            return replace(lane, hindrance=event.reason), ()
        case RunAsked():
            return _release(replace(lane, asked=Asked(event.selection))), ()
        case CancelAsked():
            return _stop(lane, Stop.KILLED if event.is_kill else Stop.CANCELLED)
        case PauseAsked():
            return replace(lane, is_paused=True), ()
        case ResumeAsked():
            return _release(replace(lane, is_paused=False)), ()
        case QuitAsked():
            lane, effects = _stop(lane, Stop.CANCELLED)
            return replace(lane, is_paused=True), effects
        case Woke():
            return _wake(lane, event.at), ()
        case Noted():
            return replace(lane, note=event.text), ()
        case BoxSeen():
            return replace(_healed(lane), box=event.box), ()
        case BoxLost():
            return _lost(replace(lane, services=()), event)
        case ServicesSeen():
            return replace(lane, services=event.services), ()
        case SnapshotTaken() | Collected() | TestsEnded():
            return _follow(lane, event), ()
        case RunEnded():
            return _end(lane, event, retry_limit)
        case _:
            assert_never(event)


def _release(lane: LaneState) -> LaneState:
    """A new change or command ends every kind of waiting but a pause."""
    match lane.activity:
        case Idle(is_held=True) | Starting():
            return replace(lane, activity=Idle())
        case Broken():
            return replace(lane, activity=replace(lane.activity, attempt=0, retry_at=None, is_due=True))
        case _:
            return lane


def _wake(lane: LaneState, at: float) -> LaneState:
    match lane.activity:
        case Broken(retry_at=float(due)) as broken if at >= due:
            return replace(lane, activity=replace(broken, retry_at=None, is_due=True))
        case _:
            return lane


def _healed(lane: LaneState) -> LaneState:
    match lane.activity:
        case Working() as working:
            return replace(lane, activity=replace(working, problem=None, loss=None))
        case _:
            return lane


def _lost(lane: LaneState, event: BoxLost) -> tuple[LaneState, Effects]:
    """At rest, a lost box is looked after at once; what is known was judged in a box that may not come back."""
    match lane.activity:
        case Idle(is_held=True):
            # The user has called it off: said now, brought back with the next save or command.
            return replace(lane, activity=Broken(event.problem, 0, None)), ()
        case Working() as working:
            return replace(lane, activity=replace(working, loss=event.problem)), ()
        case Broken(retry_at=None, is_due=False) as broken if broken.attempt:
            # Given up on a box that is there no more: another one may do.
            return replace(lane, activity=replace(broken, attempt=0, is_due=True)), ()
        case Idle() if lane.policy is not Policy.OFF:
            losses = lane.losses + 1 if event.at - lane.lost_at < LOSSES_APART_S else 0
            retry_at = event.at + min(RETRY_FIRST_S * 2 ** min(losses, 10), LOSS_LONGEST_S)
            pending = lane.pending.and_also(Pending(frozenset({EVERYTHING}), event.at))
            broken = Broken(event.problem, 0, retry_at)
            lane = replace(lane, activity=broken, pending=pending, losses=losses, lost_at=event.at)
            return lane, (WakeAt(lane.lane, retry_at),)
        case _:
            return lane, ()


def _stop(lane: LaneState, stop: Stop) -> tuple[LaneState, Effects]:
    match lane.activity:
        case Working() as working:
            # A second, harder word is passed on; a softer one after it is not.
            if working.stop is Stop.KILLED or working.stop is stop:
                return lane, ()
            return replace(lane, activity=replace(working, stop=stop)), (StopRun(lane.lane, working.run.id, stop),)
        case Broken() as broken:
            return replace(lane, activity=replace(broken, retry_at=None, is_due=False)), ()
        case _:
            return lane, ()


def _follow(lane: LaneState, event: SnapshotTaken | Collected | TestsEnded) -> LaneState:
    working = lane.activity
    if not isinstance(working, Working) or working.run.id != event.run:
        return lane
    phase = working.phase if isinstance(working.phase, Executing) else Executing(since=event.at)
    match event:
        case SnapshotTaken():
            return replace(lane, activity=replace(working, snapshot=event.snapshot))
        case Collected():
            phase = replace(phase, promised=phase.promised | event.tests)
        case TestsEnded():
            phase = replace(phase, results={**phase.results, **{result.test: result for result in event.results}})
        case _:
            assert_never(event)
    return replace(lane, activity=replace(working, phase=phase), note="")


def _end(lane: LaneState, event: RunEnded, retry_limit: int) -> tuple[LaneState, Effects]:
    working = lane.activity
    if not isinstance(working, Working) or working.run.id != event.run:
        return lane, ()
    given_back = replace(lane, pending=lane.pending.and_also(working.carried), note="")
    ending = event.ending
    match ending:
        case Judged():
            return _rested(_learned(lane, working, ending, event.at), working, ending.snapshot, event.at)
        case Unchanged():
            # Not a run: the last verdict already speaks of this very tree.
            return _rested(replace(lane, activity=Idle(), note=""), working, ending.snapshot, event.at)
        case Halted(stop=stop):
            if stop is Stop.SUPERSEDED and working.run.is_forced:
                given_back = replace(given_back, asked=lane.asked or Asked(working.run.selection))
            goes_on = stop is Stop.SUPERSEDED or lane.asked is not None or bool(lane.pending)
            return replace(_filed(given_back, working, ending, event.at), activity=Idle(is_held=not goes_on)), ()
        case Broke():
            has_news = bool(lane.pending) or lane.asked is not None
            after, effects = _broke(given_back, working, ending, event.at, retry_limit)
            # What came meanwhile may be the very change that mends it: it does not wait for another.
            return (_release(after), ()) if has_news and not effects else (after, effects)
        case _:
            assert_never(ending)


def _rested(lane: LaneState, working: Working, snapshot: Snapshot, at: float) -> tuple[LaneState, Effects]:
    """After a run that came to its end: a box that was lost meanwhile is looked after now."""
    if working.loss is not None:
        return _lost(lane, BoxLost(lane.lane, at, working.loss))
    return lane, _second_look(working, snapshot)


def _second_look(working: Working, snapshot: Snapshot) -> Effects:
    """Where only the paths that the watch had named were looked at, its word is checked when there is time."""
    return () if EVERYTHING in working.carried.paths else (LookAgain(working.run.lane, snapshot),)


def _learned(lane: LaneState, working: Working, ending: Judged, at: float) -> LaneState:
    knowledge = learn(lane.knowledge, working.run, ending.snapshot, ending.execution, at)
    knowledge = replace(knowledge, box=ending.box)
    filed = _filed(replace(lane, knowledge=knowledge, note=""), working, ending, at)
    if covers_everything(working.run.selection) or knowledge.is_complete:
        return replace(filed, activity=Idle())
    # Only some tests ran: the tree is not done with. While one of them is red, the rest can wait for the next save.
    is_held = knowledge.verdict.is_red and not lane.pending
    owed = working.carried or Pending(frozenset({EVERYTHING}), at)
    return replace(filed, activity=Idle(is_held), pending=lane.pending.and_also(owed))


def _broke(lane: LaneState, working: Working, ending: Broke, at: float, retry_limit: int) -> tuple[LaneState, Effects]:
    lane = _filed(lane, working, ending, at)
    if working.run.is_forced:
        lane = replace(lane, asked=lane.asked or Asked(working.run.selection))
    attempt = working.attempt + 1
    has_tried_enough = attempt >= retry_limit and not (ending.is_awaited and retry_limit == RETRY_LIMIT)
    gives_up = not ending.is_passing or has_tried_enough or working.stop is not None
    retry_at = None if gives_up else at + min(RETRY_FIRST_S * 2 ** min(attempt - 1, 10), RETRY_LONGEST_S)
    lane = replace(lane, activity=Broken(ending.problem, attempt, retry_at))
    return lane, () if retry_at is None else (WakeAt(lane.lane, retry_at),)


def _filed(lane: LaneState, working: Working, ending: Ending, at: float) -> LaneState:
    results = dict(working.phase.results) if isinstance(working.phase, Executing) else {}
    match ending:
        case Judged(execution=execution):
            judgement = judge(execution)
            state, reason, raw = judgement.state, judgement.reason, execution.raw_output
            results = dict(execution.results)
        case Unchanged():
            return lane
        case Halted(stop=stop):
            state, reason, raw = RunState(stop.value), "", ""
        case Broke(problem=problem):
            state, reason, raw = RunState.BROKEN, problem.message, ""
        case _:
            assert_never(ending)
    finished = Finished(working.run, state, working.since, at, results, reason, raw)
    return replace(lane, last=finished, strip=(*lane.strip, state)[-STRIP_LENGTH:])


def leave(state: State) -> State:
    """The last state of all: every lane stopped, what was under way given back and never called judged."""
    return replace(state, is_leaving=True, lanes={name: _left(lane) for name, lane in state.lanes.items()})


def _left(lane: LaneState) -> LaneState:
    carried = lane.activity.carried if isinstance(lane.activity, Working) else Pending()
    return replace(lane, activity=Stopped(), pending=lane.pending.and_also(carried))
