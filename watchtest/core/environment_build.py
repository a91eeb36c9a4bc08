"""Which clean environment a lane builds behind its runs, and what follows when it is ready. Pure.

A verdict from an outdated box is provisional. It becomes final only by a run of all tests in the clean environment.
"""

from __future__ import annotations

from dataclasses import replace

from watchtest.core.events import (
    EVERYTHING,
    BuildEnvironment,
    Effects,
    EnvironmentBuilt,
    EnvironmentChecked,
    RunRequested,
    SetTimer,
    StopBuild,
)
from watchtest.core.model import Policy
from watchtest.core.retry import RETRY_LIMIT, RETRY_LONGEST_S, backoff_s, release
from watchtest.core.run_queue import enqueue
from watchtest.core.state import BuildFailed, Building, LaneState, PendingChanges


def follow_build(lane: LaneState, event: EnvironmentChecked | EnvironmentBuilt) -> tuple[LaneState, Effects]:
    return _order(lane, event) if isinstance(event, EnvironmentChecked) else _end(lane, event)


def _order(lane: LaneState, event: EnvironmentChecked) -> tuple[LaneState, Effects]:
    """Build what a run wants, unless that is under way or has failed; stop a build that is no longer wanted."""
    if lane.build is not None and lane.build.key == event.wanted:
        return lane, ()
    if event.wanted:
        building = Building(event.wanted, event.at)
        return replace(lane, build=building), (BuildEnvironment(lane.lane, event.wanted),)
    return replace(lane, build=None), (StopBuild(lane.lane),) if isinstance(lane.build, Building) else ()


def _end(lane: LaneState, event: EnvironmentBuilt) -> tuple[LaneState, Effects]:
    """Run the tests in the environment that is ready, or keep the problem, with another attempt if it may pass."""
    building = lane.build
    if not isinstance(building, Building) or building.key != event.key:
        return lane, ()  # superseded
    lane = replace(lane, notes=replace(lane.notes, current=""))
    if event.problem is None:
        lane = replace(lane, build=None)
        if lane.effective_policy is Policy.OFF:
            return release(enqueue(lane, RunRequested(lane.lane, event.at))), ()
        return release(replace(lane, pending=lane.pending | PendingChanges(frozenset({EVERYTHING}), event.at))), ()
    attempt = building.attempt + 1
    if not event.is_transient or attempt >= RETRY_LIMIT:
        return replace(lane, build=BuildFailed(event.key, event.problem, attempt)), ()
    retry_at = event.at + backoff_s(attempt - 1, RETRY_LONGEST_S)
    failed = BuildFailed(event.key, event.problem, attempt, retry_at)
    return replace(lane, build=failed), (SetTimer(lane.lane, retry_at),)


def retry_build_if_due(lane: LaneState, at: float) -> tuple[LaneState, Effects]:
    match lane.build:
        case BuildFailed(key=key, attempt=attempt, retry_at=float(due)) if at >= due:
            return replace(lane, build=Building(key, at, attempt)), (BuildEnvironment(lane.lane, key),)
        case _:
            return lane, ()


def forget_failed_build(lane: LaneState) -> LaneState:
    """Let the next run order the environment again: the user has requested one."""
    return replace(lane, build=None) if isinstance(lane.build, BuildFailed) else lane
