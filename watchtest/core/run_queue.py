"""The runs that were asked for and wait for their turn. Pure.

A run is accepted under an id, and whoever has the id may rely on an end: it runs, or it is dropped with a reason. The
queue is bounded; what does not fit is refused, visibly.
"""

from __future__ import annotations

from dataclasses import replace

from watchtest.core.events import RunRequested
from watchtest.core.model import Run
from watchtest.core.state import DroppedRun, LaneState, QueuedRun, Working

WAITING_LIMIT = 20
WANTED = "asked for"
LEAVING = "the watcher leaves"
BEFORE_IT_BEGAN = "cancelled before it began"


def enqueue(lane: LaneState, event: RunRequested, *, is_leaving: bool = False) -> LaneState:
    """The run waits now, or is refused. One that waits already is not asked for twice."""
    if event.id and event.id in _ids(lane):
        return lane
    if not event.id and any(asked.selection == event.selection and not asked.is_named for asked in lane.asked):
        return lane
    if is_leaving:
        return _refused(lane, event, LEAVING)
    if len(lane.asked) >= WAITING_LIMIT:
        return _refused(lane, event, f"{WAITING_LIMIT} runs wait already")
    lane, allotted = (lane, event.id) if event.id else allot_id(lane)
    asked = QueuedRun(allotted, event.at, event.selection, is_named=bool(event.id), reason=WANTED)
    return replace(lane, asked=(*lane.asked, asked))


def _refused(lane: LaneState, event: RunRequested, reason: str) -> LaneState:
    """Said on screen; where the asker knows its id, it is told by that, too."""
    dropped = (
        DroppedRun(QueuedRun(event.id, event.at, event.selection, is_named=True, reason=WANTED), f"refused: {reason}"),
    )
    return replace(lane, note=f"a run was refused: {reason}", dropped=dropped if event.id else ())


def drop_queued(lane: LaneState, run: str, reason: str) -> LaneState:
    """The run of this id waits no longer; no matter if it never did."""
    gone = tuple(DroppedRun(asked, reason) for asked in lane.asked if asked.id == run)
    return replace(lane, asked=tuple(asked for asked in lane.asked if asked.id != run), dropped=(*lane.dropped, *gone))


def requeue(lane: LaneState, run: Run, at: float, reason: str) -> tuple[LaneState, str]:
    """What was asked for and had no verdict comes first, as a new run; the id of that run."""
    same = next((asked for asked in lane.asked if asked.selection == run.selection and not asked.is_named), None)
    if same is not None:
        return lane, same.id
    lane, allotted = allot_id(lane)
    return replace(lane, asked=(QueuedRun(allotted, at, run.selection, reason=reason), *lane.asked)), allotted


def allot_id(lane: LaneState) -> tuple[LaneState, str]:
    """The next id of this lane."""
    return replace(lane, ids=lane.ids + 1), f"{lane.session}.{lane.ids + 1}"


def _ids(lane: LaneState) -> set[str]:
    under_way = {lane.activity.run.id} if isinstance(lane.activity, Working) else set()
    return under_way | {asked.id for asked in lane.asked}
