"""The runs that were requested and wait for their turn. Pure.

A run is accepted under an id, and the client can rely on it: the run either ends or is dropped with a reason. The queue
is bounded; further requests are refused visibly.
"""

from __future__ import annotations

from dataclasses import replace

from watchtest.core.events import RunRequested
from watchtest.core.model import Run
from watchtest.core.state import DroppedRun, LaneState, QueuedRun, Working

WAITING_LIMIT = 20
REQUESTED = "requested"
LEAVING = "the watcher is stopping"
BEFORE_IT_BEGAN = "cancelled before it began"


def enqueue(lane: LaneState, event: RunRequested, *, is_leaving: bool = False) -> LaneState:
    """Queue the requested run, or refuse it. A run that is queued already is not queued twice."""
    waiting = lane.queue.waiting
    if event.id and event.id in _ids(lane):
        return lane
    if not event.id and any(queued.selection == event.selection and not queued.is_named for queued in waiting):
        return lane
    if is_leaving:
        return _refuse(lane, event, LEAVING)
    if len(waiting) >= WAITING_LIMIT:
        return _refuse(lane, event, f"{WAITING_LIMIT} runs are already queued")
    lane, run_id = (lane, event.id) if event.id else allot_id(lane)
    queued = QueuedRun(run_id, event.at, event.selection, is_named=bool(event.id), reason=REQUESTED)
    return replace(lane, queue=replace(lane.queue, waiting=(*waiting, queued)))


def _refuse(lane: LaneState, event: RunRequested, reason: str) -> LaneState:
    """Show the refusal; if the client knows the id, also report the run as dropped."""
    lane = replace(lane, notes=replace(lane.notes, current=f"a run was refused: {reason}"))
    if not event.id:
        return lane
    run = QueuedRun(event.id, event.at, event.selection, is_named=True, reason=REQUESTED)
    return replace(lane, queue=replace(lane.queue, dropped=(DroppedRun(run, f"refused: {reason}"),)))


def drop_queued(lane: LaneState, run: str, reason: str) -> LaneState:
    """Remove the run with this id from the queue, if it is there."""
    kept = tuple(queued for queued in lane.queue.waiting if queued.id != run)
    dropped = tuple(DroppedRun(queued, reason) for queued in lane.queue.waiting if queued.id == run)
    return replace(lane, queue=replace(lane.queue, waiting=kept, dropped=(*lane.queue.dropped, *dropped)))


def requeue(lane: LaneState, run: Run, at: float, reason: str) -> tuple[LaneState, str]:
    """Queue a requested run that reached no verdict again, at the front. Return also the id of the new run."""
    waiting = lane.queue.waiting
    same = next((queued for queued in waiting if queued.selection == run.selection and not queued.is_named), None)
    if same is not None:
        return lane, same.id
    lane, run_id = allot_id(lane)
    again = QueuedRun(run_id, at, run.selection, reason=reason)
    return replace(lane, queue=replace(lane.queue, waiting=(again, *waiting))), run_id


def allot_id(lane: LaneState) -> tuple[LaneState, str]:
    """Return the lane and its next run id."""
    number = lane.queue.ids + 1
    return replace(lane, queue=replace(lane.queue, ids=number)), f"{lane.session}.{number}"


def _ids(lane: LaneState) -> set[str]:
    active = {lane.activity.run.id} if isinstance(lane.activity, Working) else set()
    return active | {queued.id for queued in lane.queue.waiting}
