"""Whether a lane has come to rest, and what it waits for where it has not. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from watchtest.core.model import Policy
from watchtest.core.state import Broken, Idle, LaneState, Starting, Stopped, Working


@dataclass(frozen=True, slots=True)
class Rest:
    """At rest: nothing more will be known of the code as it is until somebody saves or asks."""

    is_settled: bool
    waits_for: str = ""


def rest_of(lane: LaneState) -> Rest:
    """By the first law, a lane that rests without pending changes has judged all that it was told of."""
    has_work = bool(lane.pending or lane.asked)
    match lane.activity:
        case Starting():
            return Rest(False)
        case Working(problem=problem):
            return Rest(False, problem.message if problem is not None else "")
        case Idle(is_held=is_held):
            if not has_work or (lane.present_policy is Policy.OFF and not lane.asked):
                return Rest(True)
            if lane.is_paused:
                return Rest(False, "the lane is paused; `watchtest resume` lets it go on")
            return Rest(is_held, lane.waits_for)
        case Broken(problem=problem, retry_at=retry_at, is_due=is_due):
            return Rest(retry_at is None and not is_due, problem.message)
        case Stopped():
            return Rest(True)
        case _:
            assert_never(lane.activity)
