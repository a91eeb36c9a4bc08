"""How a lane waits after something went wrong, and what ends the waiting. Pure."""

from __future__ import annotations

from dataclasses import replace

from watchtest.core.events import EVERYTHING, BoxLost, Effects, SetTimer
from watchtest.core.model import Policy
from watchtest.core.state import Broken, Idle, LaneState, PendingChanges, Starting, Working

RETRY_FIRST_S = 0.5
RETRY_LONGEST_S = 30.0
RETRY_LIMIT = 10
LOSSES_APART_S = 10.0
"""A box that is lost again within this has not really come back."""
LOSS_LONGEST_S = 5.0
RETRY_LIMIT_ONCE = 3
"""With --once somebody waits for the exit code."""


def release(lane: LaneState) -> LaneState:
    """A new change or command ends every kind of waiting but a pause."""
    match lane.activity:
        case Idle(is_held=True) | Starting():
            return replace(lane, activity=Idle())
        case Broken():
            return replace(lane, activity=replace(lane.activity, attempt=0, retry_at=None, is_due=True))
        case _:
            return lane


def retry_if_due(lane: LaneState, at: float) -> LaneState:
    match lane.activity:
        case Broken(retry_at=float(due)) as broken if at >= due:
            return replace(lane, activity=replace(broken, retry_at=None, is_due=True))
        case _:
            return lane


def clear_problem(lane: LaneState) -> LaneState:
    match lane.activity:
        case Working() as working:
            return replace(lane, activity=replace(working, problem=None, loss=None))
        case _:
            return lane


def lose_box(lane: LaneState, event: BoxLost) -> tuple[LaneState, Effects]:
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
        case Idle() if lane.effective_policy is not Policy.OFF:
            losses = lane.losses + 1 if event.at - lane.lost_at < LOSSES_APART_S else 0
            retry_at = event.at + min(RETRY_FIRST_S * 2 ** min(losses, 10), LOSS_LONGEST_S)
            pending = lane.pending.and_also(PendingChanges(frozenset({EVERYTHING}), event.at))
            broken = Broken(event.problem, 0, retry_at)
            lane = replace(lane, activity=broken, pending=pending, losses=losses, lost_at=event.at)
            return lane, (SetTimer(lane.lane, retry_at),)
        case _:
            return lane, ()
