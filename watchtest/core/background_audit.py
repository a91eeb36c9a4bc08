"""Runs of more tests than a change requires, to check the selections. Pure.

From time to time all tests run, to detect tests that a selection wrongly left out. After a new failure the whole file
runs, to detect tests that fail only when they run alone. An audit runs in the background: any change ends it, and it is
not repeated then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from watchtest.core.events import Effects, SetTimer
from watchtest.core.model import All, Execution, Only, Result, Run, Selection
from watchtest.core.run_queue import allot_id
from watchtest.core.state import AuditState, Idle, Knowledge, LaneState, QueuedRun
from watchtest.core.verdict import file_of


def count_narrowed_run(lane: LaneState, run: Run) -> LaneState:
    """Count the judged runs in a row that have left tests out.

    An audit that could not run all tests, because a file cannot be collected, would find no more the next time.
    """
    match run.selection:
        case All() if lane.knowledge.is_complete or run.is_audit:
            return replace(lane, audit=AuditState(confirmed_red=lane.audit.confirmed_red))
        case Only(is_proof=True):
            return replace(lane, audit=replace(lane.audit, narrowed_runs=lane.audit.narrowed_runs + 1))
        case _:
            return lane


def plan_audit(lane: LaneState, at: float) -> tuple[LaneState, Effects]:
    """Queue an audit of all tests if it is due, or set a timer for it. To be called when a run has ended."""
    schedule, narrowed = lane.settings.audit, lane.audit.narrowed_runs
    if not narrowed or not _is_at_rest(lane):
        return lane, ()
    if 0 < schedule.runs <= narrowed:
        return _queue_full_audit(lane, at), ()
    if not schedule.idle_s:
        return lane, ()
    due_at = at + schedule.idle_s
    return replace(lane, audit=replace(lane.audit, due_at=due_at)), (SetTimer(lane.lane, due_at),)


def audit_if_due(lane: LaneState, at: float) -> LaneState:
    audit = lane.audit
    is_due = audit.due_at is not None and at >= audit.due_at and audit.narrowed_runs > 0
    return _queue_full_audit(lane, at) if is_due and _is_at_rest(lane) else lane


def _is_at_rest(lane: LaneState) -> bool:
    is_idle = isinstance(lane.activity, Idle) and not lane.activity.is_held
    return is_idle and not lane.pending and not lane.queue and not lane.is_paused and lane.build is None


def _queue_full_audit(lane: LaneState, at: float) -> LaneState:
    everything = All(because="all tests, to check that the selections left nothing out")
    return _queue_audit(replace(lane, audit=replace(lane.audit, due_at=None)), everything, at)


def _queue_audit(lane: LaneState, selection: Selection, at: float) -> LaneState:
    lane, run_id = allot_id(lane)
    audit = QueuedRun(run_id, at, selection, reason="an audit", is_audit=True)
    return replace(lane, queue=replace(lane.queue, waiting=(*lane.queue.waiting, audit)))


def missed_by_selection(judged: Mapping[str, Result], execution: Execution) -> tuple[str, ...]:
    """Return the tests that an audit found red although they were judged green on this very tree."""
    red = (test for test, result in execution.results.items() if result.outcome.is_red)
    return tuple(sorted(test for test in red if test in judged and not judged[test].outcome.is_red))


def plan_company_check(before: LaneState, after: LaneState, run: Run, execution: Execution, at: float) -> LaneState:
    """Queue a run of the whole file for tests that turned red while other tests of their file were left out.

    The failure is shown at once, and withdrawn if the test passes together with the others.
    """
    if run.is_audit:
        red = {known.result.test for known in after.knowledge.red} & execution.results.keys()
        return replace(after, audit=replace(after.audit, confirmed_red=after.audit.confirmed_red | red))
    if not isinstance(run.selection, Only) or not run.selection.is_proof or after.pending or after.queue:
        return after
    tests = sorted(newly_red_alone(execution, before.knowledge) - after.audit.confirmed_red)
    if not tests:
        return after
    files = tuple(sorted({file_of(test) for test in tests}))
    return _queue_audit(after, Only(files, f"to see whether {tests[0]} also fails when its whole file runs"), at)


def newly_red_alone(execution: Execution, before: Knowledge) -> frozenset[str]:
    """Return newly red tests that ran without other tests of their file; they may depend on those."""
    incomplete = {file_of(test) for test in before.tests if test not in execution.promised}
    red = {test for test, result in execution.results.items() if result.outcome.is_red and file_of(test) in incomplete}
    return frozenset(test for test in red if test in before.tests and not before.tests[test].result.outcome.is_red)


def green_in_company(judged: Mapping[str, Result], execution: Execution) -> tuple[str, ...]:
    """Return the tests that failed alone and pass together with the others of their file."""
    green = (test for test, result in execution.results.items() if not result.outcome.is_red)
    return tuple(sorted(test for test in green if test in judged and judged[test].outcome.is_red))
