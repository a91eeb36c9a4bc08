"""How a lane waits after a problem of the tool, and what ends the waiting. Pure."""

from __future__ import annotations

from dataclasses import replace

from watchtest.core import state
from watchtest.core.events import EVERYTHING, BoxLost, Effects, SetTimer
from watchtest.core.model import Policy

RETRY_FIRST_S = 0.5
RETRY_LONGEST_S = 30.0
RETRY_LIMIT = 10
LOSSES_APART_S = 10.0
"""Losses of the box within this time count as one series."""
LOSS_LONGEST_S = 5.0
RETRY_LIMIT_ONCE = 3
"""With --once, a caller is waiting for the exit code."""


def backoff_s(failures: int, longest_s: float) -> float:
    """Return the delay before the next attempt: it doubles with every failure."""
    return min(RETRY_FIRST_S * 2.0 ** min(failures, 10), longest_s)


def release(lane: state.LaneState) -> state.LaneState:
    """End every kind of waiting except a pause, because of a new change or request."""
    match lane.activity:
        case state.Idle(is_held=True) | state.Starting():
            return replace(lane, activity=state.Idle())
        case state.Broken(problem=problem):
            return replace(lane, activity=state.Broken(problem, 0, state.RetryNow()))
        case _:
            return lane


def retry_if_due(lane: state.LaneState, at: float) -> state.LaneState:
    match lane.activity:
        case state.Broken(retry=state.RetryAt(at=due)) as broken if at >= due:
            return replace(lane, activity=replace(broken, retry=state.RetryNow()))
        case _:
            return lane


def clear_problem(lane: state.LaneState) -> state.LaneState:
    """Forget why the last attempt failed: the box is connected."""
    if not isinstance(lane.activity, state.Working):
        return lane
    return replace(lane, activity=replace(lane.activity, problem=None, loss=None))


def lose_box(lane: state.LaneState, event: BoxLost) -> tuple[state.LaneState, Effects]:
    """Recover a lost box soon if the lane is idle; its verdict came from a box that may not come back."""
    match lane.activity:
        case state.Idle(is_held=True):
            # The user cancelled: show the problem now, and recover with the next save or request.
            return replace(lane, activity=state.Broken(event.problem, 0, state.GivenUp())), ()
        case state.Working() as working:
            return replace(lane, activity=replace(working, loss=event.problem)), ()
        case state.Broken(problem=problem, attempt=attempt, retry=state.GivenUp()) if attempt:
            # The box that could not be used is gone; a new one may work.
            return replace(lane, activity=state.Broken(problem, 0, state.RetryNow())), ()
        case state.Idle() if lane.effective_policy is not Policy.OFF:
            losses = lane.box.losses
            count = losses.count + 1 if event.at - losses.last_at < LOSSES_APART_S else 0
            retry_at = event.at + backoff_s(count, LOSS_LONGEST_S)
            lane = replace(
                lane,
                activity=state.Broken(event.problem, 0, state.RetryAt(retry_at)),
                pending=lane.pending | state.PendingChanges(frozenset({EVERYTHING}), event.at),
                box=replace(lane.box, losses=state.BoxLosses(count, event.at)),
            )
            return lane, (SetTimer(lane.lane, retry_at),)
        case _:
            return lane, ()
