"""When all tests run although fewer would do: now and then, to check that selections have left nothing out. Pure.

An audit is a run in the background: any change ends it, and it is not owed to anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from watchtest.core.asking import with_id
from watchtest.core.events import Effects, WakeAt
from watchtest.core.model import All, Execution, Only, Result, Run
from watchtest.core.state import Asked, Idle, LaneState

WHY = "to check that selections have left nothing out"


def counted(lane: LaneState, run: Run) -> LaneState:
    """After a judged run: how many in a row have left tests out."""
    match run.selection:
        case All() if lane.knowledge.is_complete:
            return replace(lane, narrowed=0, audit_at=None)
        case Only(is_proof=True):
            return replace(lane, narrowed=lane.narrowed + 1)
        case _:
            return lane


def planned(lane: LaneState, at: float) -> tuple[LaneState, Effects]:
    """A lane that has come to rest: it is due at once, or when it has rested for long enough."""
    if not lane.narrowed or not _rests(lane):
        return lane, ()
    if 0 < lane.audit.runs <= lane.narrowed:
        return _asked(lane, at), ()
    if not lane.audit.idle_s:
        return lane, ()
    due = at + lane.audit.idle_s
    return replace(lane, audit_at=due), (WakeAt(lane.lane, due),)


def woken(lane: LaneState, at: float) -> LaneState:
    is_due = lane.audit_at is not None and at >= lane.audit_at
    return _asked(lane, at) if is_due and lane.narrowed and _rests(lane) else lane


def _rests(lane: LaneState) -> bool:
    is_at_rest = isinstance(lane.activity, Idle) and not lane.activity.is_held
    return is_at_rest and not lane.pending and not lane.asked and not lane.is_paused


def _asked(lane: LaneState, at: float) -> LaneState:
    lane, allotted = with_id(lane)
    audit = Asked(allotted, at, All(because=f"all tests, {WHY}"), reason="an audit", is_audit=True)
    return replace(lane, asked=(*lane.asked, audit), audit_at=None)


def missed(known: Mapping[str, Result], execution: Execution) -> tuple[str, ...]:
    """The tests that an audit found red, and that were held to be green on this very tree."""
    red = (test for test, result in execution.results.items() if result.outcome.is_red)
    return tuple(sorted(test for test in red if test in known and not known[test].outcome.is_red))
