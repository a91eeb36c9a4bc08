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
    BoxSeen,
    Broke,
    CancelAsked,
    Changed,
    Collected,
    Effect,
    Ending,
    Event,
    Halted,
    Judged,
    Leave,
    Noted,
    PauseAsked,
    QuitAsked,
    ResumeAsked,
    RunAsked,
    RunEnded,
    SnapshotTaken,
    StartRun,
    StopRun,
    TestsEnded,
    Unchanged,
    WakeAt,
    Woke,
)
from watchtest.core.model import Policy, Run, RunState, Stop, Trigger, Verdict
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
RETRY_LIMIT_ONCE = 3


def step(state: State, event: Event) -> tuple[State, Effects]:
    """The state after `event`, and what the loop has to do about it."""
    lane = state.lanes[event.lane]
    if isinstance(lane.activity, Stopped):
        return state, ()
    after, effects = _react(lane, event, RETRY_LIMIT_ONCE if state.once else RETRY_LIMIT)
    state = replace(state, lanes={**state.lanes, event.lane: after})
    if isinstance(event, QuitAsked) or (state.once and _has_come_to_an_end(state)):
        state = replace(state, is_leaving=True)
        return state, (*effects, Leave())
    return state, effects


def _has_come_to_an_end(state: State) -> bool:
    return all(
        (isinstance(lane.activity, Idle) and lane.last is not None)
        or (isinstance(lane.activity, Broken) and lane.activity.retry_at is None)
        for lane in state.lanes.values()
    )


def _react(lane: LaneState, event: Event, retry_limit: int) -> tuple[LaneState, Effects]:
    match event:
        case Changed():
            return _go_on(
                _release(replace(lane, pending=lane.pending.and_also(Pending(event.paths, event.at)))),
                event.at,
            )
        case RunAsked():
            return _go_on(_release(replace(lane, asked=Asked(event.selection))), event.at)
        case CancelAsked():
            return _stop(lane, Stop.KILLED if event.is_kill else Stop.CANCELLED)
        case PauseAsked():
            return replace(lane, is_paused=True), ()
        case ResumeAsked():
            return _go_on(_release(replace(lane, is_paused=False)), event.at)
        case QuitAsked():
            lane, effects = _stop(lane, Stop.CANCELLED)
            return replace(lane, is_paused=True), effects
        case Woke():
            return _wake(lane, event.at)
        case Noted():
            return replace(lane, note=event.text), ()
        case BoxSeen():
            return replace(lane, box=event.box), ()
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
            return replace(lane, activity=replace(lane.activity, attempt=0, retry_at=None))
        case _:
            return lane


def _wake(lane: LaneState, at: float) -> tuple[LaneState, Effects]:
    match lane.activity:
        case Broken(retry_at=float(due)) if at >= due:
            return _go_on(lane, at)
        case _:
            return lane, ()


def _go_on(lane: LaneState, at: float) -> tuple[LaneState, Effects]:
    """Start the next run if there is something to run and nothing stands against it."""
    if not isinstance(lane.activity, Idle | Broken) or lane.is_paused:
        return lane, ()
    if lane.asked is None and not (lane.pending and lane.policy is not Policy.OFF):
        return lane, ()
    asked = lane.asked
    selection = (asked.selection if asked else None) or choose(lane.policy, lane.knowledge)
    run = Run(
        id=f"{lane.session}.{lane.runs + 1}",
        lane=lane.lane,
        trigger=Trigger.MANUAL if asked else Trigger(lane.lane.value),
        selection=selection,
        is_forced=asked is not None,
    )
    working = Working(run=run, carried=lane.pending, since=at)
    attempt = lane.activity.attempt if isinstance(lane.activity, Broken) else 0
    known = lane.knowledge.snapshot if lane.knowledge.verdict is not Verdict.UNKNOWN else None
    lane = replace(lane, activity=replace(working, attempt=attempt), pending=Pending(), asked=None, runs=lane.runs + 1)
    return lane, (StartRun(run, known),)


def _stop(lane: LaneState, stop: Stop) -> tuple[LaneState, Effects]:
    match lane.activity:
        case Working() as working:
            # A second, harder word is passed on; a softer one after it is not.
            if working.stop is Stop.KILLED or working.stop is stop:
                return lane, ()
            return replace(lane, activity=replace(working, stop=stop)), (StopRun(lane.lane, working.run.id, stop),)
        case Broken() as broken:
            return replace(lane, activity=replace(broken, retry_at=None)), ()
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
            return _learned(lane, working, ending, event.at)
        case Unchanged():
            # Not a run: the last verdict already speaks of this very tree.
            return _go_on(replace(lane, activity=Idle(), note=""), event.at)
        case Halted(stop=stop):
            after = replace(
                _filed(given_back, working, ending, event.at),
                activity=Idle(is_held=stop is not Stop.SUPERSEDED),
            )
            return _go_on(after, event.at) if stop is Stop.SUPERSEDED or lane.asked or lane.pending else (after, ())
        case Broke():
            has_news = bool(lane.pending) or lane.asked is not None
            after, effects = _broke(given_back, working, ending, event.at, retry_limit)
            # What came meanwhile may be the very change that mends it: it does not wait for another.
            return _go_on(_release(after), event.at) if has_news and not effects else (after, effects)
        case _:
            assert_never(ending)


def _learned(lane: LaneState, working: Working, ending: Judged, at: float) -> tuple[LaneState, Effects]:
    knowledge = learn(lane.knowledge, working.run, ending.snapshot, ending.execution, at)
    filed = _filed(replace(lane, knowledge=knowledge, note=""), working, ending, at)
    before = lane.knowledge.snapshot
    is_same_tree = before is not None and before.id == ending.snapshot.id
    if covers_everything(working.run.selection) or (is_same_tree and not working.carried):
        return _go_on(replace(filed, activity=Idle()), at)
    # Only some tests ran: the change is not done with. While one of them is red, the rest can wait for the next save.
    is_held = knowledge.verdict.is_red and not lane.pending
    after = replace(filed, activity=Idle(is_held), pending=lane.pending.and_also(working.carried))
    return (after, ()) if is_held else _go_on(after, at)


def _broke(lane: LaneState, working: Working, ending: Broke, at: float, retry_limit: int) -> tuple[LaneState, Effects]:
    lane = _filed(lane, working, ending, at)
    if working.run.is_forced:
        lane = replace(lane, asked=lane.asked or Asked(working.run.selection))
    attempt = working.attempt + 1
    gives_up = not ending.is_passing or attempt >= retry_limit or working.stop is not None
    retry_at = None if gives_up else at + min(RETRY_FIRST_S * 2 ** (attempt - 1), RETRY_LONGEST_S)
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
