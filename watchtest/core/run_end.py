"""How a run ends: what the lane learns from it, and what it does next. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from watchtest.core import events, state
from watchtest.core.background_audit import count_narrowed_run, plan_audit, plan_company_check
from watchtest.core.model import Policy, Provisional, RunState, Snapshot, StopReason
from watchtest.core.retry import RETRY_LIMIT, RETRY_LONGEST_S, backoff_s, lose_box, release
from watchtest.core.run_queue import requeue
from watchtest.core.supersede import is_same_save
from watchtest.core.verdict import blamed_tests, covers_everything, judge, learn


def end_run(lane: state.LaneState, event: events.RunEnded, retry_limit: int) -> tuple[state.LaneState, events.Effects]:
    """Learn from a judged run. A halted or broken run gives its changes back, and a requested run is queued again."""
    working = lane.activity
    if not isinstance(working, state.Working) or working.run.id != event.run:
        return lane, ()
    lane = replace(lane, notes=replace(lane.notes, current=""))
    given_back = replace(
        lane, pending=lane.pending | working.changes, unjudged_results={**lane.unjudged_results, **working.results}
    )
    ending = event.ending
    if isinstance(ending, events.Judged) and working.stop_reason is StopReason.SUPERSEDED and is_same_save(lane):
        ending = events.Halted(StopReason.SUPERSEDED)  # it ended before it could be stopped, but it tested half a save
    match ending:
        case events.Judged():
            learned = count_narrowed_run(_learn(lane, working, ending, event.at), working.run)
            has_lost_box = ending.execution.has_lost_box
            after, effects = _rest(learned, working, ending.snapshot, event.at, has_lost_box=has_lost_box)
            after = plan_company_check(lane, after, working.run, ending.execution, event.at)
            after, more = plan_audit(after, event.at)
            return after, (*effects, *more)
        case events.Unchanged():
            # This does not count as a run: the last verdict is about this very tree.
            # What an unfinished run saw was about other code.
            idle = replace(lane, activity=state.Idle(), unjudged_results={})
            return _rest(idle, working, ending.snapshot, event.at)
        case events.Halted(stop=stop, because=because):
            successor = ""
            if stop is StopReason.SUPERSEDED and _is_requested(working):
                why = f"run {working.run.id} was superseded"
                given_back, successor = requeue(given_back, working.run, event.at, why)
            continues = stop is StopReason.SUPERSEDED or bool(lane.queue) or bool(lane.pending)
            reason = working.stop.because if working.stop else because
            filed = _file(given_back, _finished(working, RunState(stop.value), reason, event.at, successor))
            return replace(filed, activity=state.Idle(is_held=not continues)), ()
        case events.ToolFailure():
            has_news = bool(lane.pending) or bool(lane.queue)
            after, effects = _break(given_back, working, ending, event.at, retry_limit)
            # A change that arrived during the run may be the one that solves the problem, so it is tested at once.
            return (release(after), ()) if has_news and not effects else (after, effects)
        case _:
            assert_never(ending)


def _is_requested(working: state.Working) -> bool:
    return working.run.is_forced and not working.run.is_audit


def _rest(
    lane: state.LaneState, working: state.Working, snapshot: Snapshot, at: float, *, has_lost_box: bool = False
) -> tuple[state.LaneState, events.Effects]:
    """Recover a box that was lost during the run; otherwise let the whole source be checked once more.

    A box that the tests themselves have ended is recovered by the next run: repeating this one would end it again.
    A run that looked only at the paths that the file watch had named relies on the watch having named them all.
    """
    if working.loss is not None and not has_lost_box:
        return lose_box(lane, events.BoxLost(lane.lane, at, working.loss))
    if events.EVERYTHING in working.changes.paths:
        return lane, ()
    return lane, (events.RecheckSource(lane.lane, snapshot),)


def _learn(lane: state.LaneState, working: state.Working, ending: events.Judged, at: float) -> state.LaneState:
    was = _valid_in(lane.knowledge, ending.provisional)
    knowledge = learn(was, working.run, ending.snapshot, ending.execution, at)
    is_same_box = knowledge.is_complete or lane.knowledge.box == ending.box
    base = knowledge.base if is_same_box else None
    knowledge = replace(knowledge, box=ending.box, base=base, provisional=ending.provisional)
    judgement = judge(ending.execution)
    finished = _finished(working, judgement.state, judgement.reason, at)
    results = {**ending.execution.results, **{result.test: result for result in blamed_tests(ending.execution)}}
    finished = replace(
        finished, results=results, raw_output=ending.execution.raw_output, provisional=ending.provisional
    )
    filed = replace(_file(lane, finished), knowledge=knowledge, unjudged_results={})
    if covers_everything(working.run.selection) or knowledge.is_complete:
        return replace(filed, activity=state.Idle())
    # Only some tests ran, so the changes stay pending. If the policy is to run failed tests until they pass, the others
    # wait for the next save; after a request, the policy decides about the changes.
    is_policy = lane.effective_policy is Policy.FAILED
    is_held = is_policy and knowledge.verdict.is_red and not lane.pending and not lane.queue
    left = working.changes or state.PendingChanges(frozenset({events.EVERYTHING}), at)
    return replace(filed, activity=state.Idle(is_held), pending=lane.pending | left)


def _valid_in(knowledge: state.Knowledge, provisional: Provisional | None) -> state.Knowledge:
    """Return what is still known in another environment: the results, but no proof that they cover every test."""
    was = knowledge.provisional
    if was is None or (provisional is not None and provisional.code is was.code):
        return knowledge
    return replace(knowledge, is_complete=False, base=None)


def _break(
    lane: state.LaneState, working: state.Working, ending: events.ToolFailure, at: float, retry_limit: int
) -> tuple[state.LaneState, events.Effects]:
    attempt = working.attempt + 1
    has_tried_enough = attempt >= retry_limit and not (ending.retries_forever and retry_limit == RETRY_LIMIT)
    gives_up = not ending.is_transient or has_tried_enough or working.stop is not None
    retry = state.GivenUp() if gives_up else state.RetryAt(at + backoff_s(attempt - 1, RETRY_LONGEST_S))
    successor = ""
    is_cancelled = working.stop_reason in (StopReason.CANCELLED, StopReason.KILLED)
    # A run that was given up must not come before other queued runs: each would break and be queued again, forever.
    if _is_requested(working) and not is_cancelled and not (gives_up and lane.queue):
        lane, successor = requeue(lane, working.run, at, f"run {working.run.id} broke")
    lane = _file(lane, _finished(working, RunState.BROKEN, ending.problem.message, at, successor))
    lane = replace(lane, activity=state.Broken(ending.problem, attempt, retry))
    return lane, (events.SetTimer(lane.lane, retry.at),) if isinstance(retry, state.RetryAt) else ()


def _finished(working: state.Working, end: RunState, reason: str, at: float, successor: str = "") -> state.FinishedRun:
    if successor:
        reason = f"{reason}; continues as run {successor}" if reason else f"continues as run {successor}"
    return state.FinishedRun(working.run, end, working.since, at, working.results, reason, successor=successor)


def _file(lane: state.LaneState, finished: state.FinishedRun) -> state.LaneState:
    """Add the run to the log of the lane."""
    recent = (*lane.runs.recent_states, finished.state)[-state.RECENT_RUNS :]
    return replace(lane, runs=state.RunLog(lane.runs.started, finished, recent))
