"""When more tests run than a change asks for, to check what selections say. Pure.

Now and then all of them, to see that nothing was left out; and after new red all of a file, to see that it is not red
for being alone.

An audit is a run in the background: any change ends it, and it is not owed to anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from watchtest.core.events import Effects, SetTimer
from watchtest.core.model import All, Execution, Only, Result, Run
from watchtest.core.run_queue import allot_id
from watchtest.core.state import Idle, Knowledge, LaneState, QueuedRun
from watchtest.core.verdict import file_of

WHY = "to check that selections have left nothing out"


def count_narrowed_run(lane: LaneState, run: Run) -> LaneState:
    """After a judged run: how many in a row have left tests out."""
    match run.selection:
        case All() if lane.knowledge.is_complete:
            return replace(lane, narrowed=0, audit_at=None)
        case Only(is_proof=True):
            return replace(lane, narrowed=lane.narrowed + 1)
        case _:
            return lane


def plan_audit(lane: LaneState, at: float) -> tuple[LaneState, Effects]:
    """A lane that has come to rest: it is due at once, or when it has rested for long enough."""
    if not lane.narrowed or not _rests(lane):
        return lane, ()
    if 0 < lane.audit.runs <= lane.narrowed:
        return _asked(lane, at), ()
    if not lane.audit.idle_s:
        return lane, ()
    due = at + lane.audit.idle_s
    return replace(lane, audit_at=due), (SetTimer(lane.lane, due),)


def audit_if_due(lane: LaneState, at: float) -> LaneState:
    is_due = lane.audit_at is not None and at >= lane.audit_at
    return _asked(lane, at) if is_due and lane.narrowed and _rests(lane) else lane


def _rests(lane: LaneState) -> bool:
    is_at_rest = isinstance(lane.activity, Idle) and not lane.activity.is_held
    return is_at_rest and not lane.pending and not lane.asked and not lane.is_paused


def _asked(lane: LaneState, at: float) -> LaneState:
    lane, allotted = allot_id(lane)
    audit = QueuedRun(allotted, at, All(because=f"all tests, {WHY}"), reason="an audit", is_audit=True)
    return replace(lane, asked=(*lane.asked, audit), audit_at=None)


# -- company -----------------------------------------------------------------------------------------


def plan_company_check(before: LaneState, after: LaneState, run: Run, execution: Execution, at: float) -> LaneState:
    """After red of a selection that left out others of a file: see whether it is red among them, too.

    Nobody waits for that: red is said at once, and taken back if it turns out that it was only for being alone.
    """
    if run.is_audit:
        red = {known.result.test for known in after.knowledge.red}
        return replace(after, independent=after.independent | (red & execution.results.keys()))
    if not isinstance(run.selection, Only) or not run.selection.is_proof or after.pending or after.asked:
        return after
    tests = sorted(newly_red_alone(execution, before.knowledge) - after.independent)
    if not tests:
        return after
    files = tuple(sorted({file_of(test) for test in tests}))
    why = f"to see whether {tests[0]} fails among the others of its file, too"
    after, allotted = allot_id(after)
    return replace(after, asked=(QueuedRun(allotted, at, Only(files, why), reason="an audit", is_audit=True),))


def newly_red_alone(execution: Execution, before: Knowledge) -> frozenset[str]:
    """Newly red tests that ran without others of their file: they may count on what those leave behind."""
    short = {file_of(test) for test in before.tests if test not in execution.promised}
    red = {test for test, result in execution.results.items() if result.outcome.is_red and file_of(test) in short}
    return frozenset(test for test in red if test in before.tests and not before.tests[test].result.outcome.is_red)


def green_in_company(known: Mapping[str, Result], execution: Execution) -> tuple[str, ...]:
    """Tests that were red by themselves and pass in company."""
    green = (test for test, result in execution.results.items() if not result.outcome.is_red)
    return tuple(sorted(test for test in green if test in known and known[test].outcome.is_red))


# -- misses ------------------------------------------------------------------------------------------


def missed_by_selection(known: Mapping[str, Result], execution: Execution) -> tuple[str, ...]:
    """The tests that an audit found red, and that were held to be green on this very tree."""
    red = (test for test, result in execution.results.items() if result.outcome.is_red)
    return tuple(sorted(test for test in red if test in known and not known[test].outcome.is_red))
