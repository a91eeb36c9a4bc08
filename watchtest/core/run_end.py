"""What a lane is after a run of it has ended, by whatever end. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from watchtest.core.audit import count_narrowed_run, plan_audit, plan_company_check
from watchtest.core.events import (
    EVERYTHING,
    BoxLost,
    Effects,
    Ending,
    Halted,
    Judged,
    RecheckSource,
    RunEnded,
    SetTimer,
    ToolFailure,
    Unchanged,
)
from watchtest.core.model import RunState, Snapshot, StopReason
from watchtest.core.retry import RETRY_FIRST_S, RETRY_LIMIT, RETRY_LONGEST_S, lose_box, release
from watchtest.core.run_queue import requeue
from watchtest.core.state import RECENT_RUNS, Broken, Executing, FinishedRun, Idle, LaneState, PendingChanges, Working
from watchtest.core.supersede import is_same_save
from watchtest.core.verdict import blamed_tests, covers_everything, judge, learn


def end_run(lane: LaneState, event: RunEnded, retry_limit: int) -> tuple[LaneState, Effects]:
    """Judged: learned from. Halted or broken: its changes are given back, and what was asked for stays owed."""
    working = lane.activity
    if not isinstance(working, Working) or working.run.id != event.run:
        return lane, ()
    said = working.phase.results if isinstance(working.phase, Executing) else {}
    given_back = replace(
        lane,
        pending=lane.pending.and_also(working.changes),
        unjudged_results={**lane.unjudged_results, **said},
        note="",
    )
    ending = event.ending
    if isinstance(ending, Judged) and working.stop is StopReason.SUPERSEDED and is_same_save(lane):
        ending = Halted(StopReason.SUPERSEDED)  # it came to its end before it could be stopped, on half a save
    match ending:
        case Judged():
            learned = count_narrowed_run(_learned(lane, working, ending, event.at), working.run)
            after, effects = _rested(learned, working, ending.snapshot, event.at)
            after = plan_company_check(lane, after, working.run, ending.execution, event.at)
            after, more = plan_audit(after, event.at)
            return after, (*effects, *more)
        case Unchanged():
            # Not a run: the last verdict already speaks of this very tree.
            return _rested(replace(lane, activity=Idle(), note=""), working, ending.snapshot, event.at)
        case Halted(stop=stop):
            successor = ""
            if stop is StopReason.SUPERSEDED and working.run.is_forced and not working.run.is_audit:
                given_back, successor = requeue(
                    given_back, working.run, event.at, f"run {working.run.id} was superseded"
                )
            goes_on = stop is StopReason.SUPERSEDED or bool(lane.asked) or bool(lane.pending)
            filed = _filed(given_back, working, ending, event.at, successor)
            return replace(filed, activity=Idle(is_held=not goes_on)), ()
        case ToolFailure():
            has_news = bool(lane.pending) or bool(lane.asked)
            after, effects = _broke(given_back, working, ending, event.at, retry_limit)
            # What came meanwhile may be the very change that mends it: it does not wait for another.
            return (release(after), ()) if has_news and not effects else (after, effects)
        case _:
            assert_never(ending)


def _rested(lane: LaneState, working: Working, snapshot: Snapshot, at: float) -> tuple[LaneState, Effects]:
    """After a run that came to its end: a box that was lost meanwhile is looked after now."""
    if working.loss is not None:
        return lose_box(lane, BoxLost(lane.lane, at, working.loss))
    return lane, _second_look(working, snapshot)


def _second_look(working: Working, snapshot: Snapshot) -> Effects:
    """Where only the paths that the watch had named were looked at, its word is checked when there is time."""
    return () if EVERYTHING in working.changes.paths else (RecheckSource(working.run.lane, snapshot),)


def _learned(lane: LaneState, working: Working, ending: Judged, at: float) -> LaneState:
    knowledge = learn(lane.knowledge, working.run, ending.snapshot, ending.execution, at)
    is_same_box = knowledge.is_complete or lane.knowledge.box == ending.box
    knowledge = replace(knowledge, box=ending.box, base=knowledge.base if is_same_box else None)
    filed = _filed(replace(lane, knowledge=knowledge, unjudged_results={}, note=""), working, ending, at)
    if covers_everything(working.run.selection) or knowledge.is_complete:
        return replace(filed, activity=Idle())
    # Only some tests ran: the tree is not done with. While one of them is red, the rest can wait for the next save.
    is_held = knowledge.verdict.is_red and not lane.pending and not lane.asked
    left = working.changes or PendingChanges(frozenset({EVERYTHING}), at)
    return replace(filed, activity=Idle(is_held), pending=lane.pending.and_also(left))


def _broke(
    lane: LaneState, working: Working, ending: ToolFailure, at: float, retry_limit: int
) -> tuple[LaneState, Effects]:
    attempt = working.attempt + 1
    has_tried_enough = attempt >= retry_limit and not (ending.retries_forever and retry_limit == RETRY_LIMIT)
    gives_up = not ending.is_transient or has_tried_enough or working.stop is not None
    retry_at = None if gives_up else at + min(RETRY_FIRST_S * 2 ** min(attempt - 1, 10), RETRY_LONGEST_S)
    successor = ""
    is_called_off = working.stop in (StopReason.CANCELLED, StopReason.KILLED)
    # Given up, it must not stand before others that wait: each would break, and come back, without an end.
    if working.run.is_forced and not working.run.is_audit and not is_called_off and not (gives_up and lane.asked):
        lane, successor = requeue(lane, working.run, at, f"run {working.run.id} broke")
    lane = _filed(lane, working, ending, at, successor)
    lane = replace(lane, activity=Broken(ending.problem, attempt, retry_at))
    return lane, () if retry_at is None else (SetTimer(lane.lane, retry_at),)


def _filed(lane: LaneState, working: Working, ending: Ending, at: float, successor: str = "") -> LaneState:
    results = dict(working.phase.results) if isinstance(working.phase, Executing) else {}
    match ending:
        case Judged(execution=execution):
            judgement = judge(execution)
            state, reason, raw = judgement.state, judgement.reason, execution.raw_output
            results = {**execution.results, **{result.test: result for result in blamed_tests(execution)}}
        case Unchanged():
            return lane
        case Halted(stop=stop):
            state, reason, raw = RunState(stop.value), working.stop_reason, ""
        case ToolFailure(problem=problem):
            state, reason, raw = RunState.BROKEN, problem.message, ""
        case _:
            assert_never(ending)
    if successor:
        reason = f"{reason}; goes on as run {successor}" if reason else f"goes on as run {successor}"
    finished = FinishedRun(working.run, state, working.since, at, results, reason, raw, successor)
    return replace(lane, last=finished, recent_states=(*lane.recent_states, state)[-RECENT_RUNS:])
