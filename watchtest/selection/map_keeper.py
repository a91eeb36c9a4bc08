"""Saves the test maps while lanes are idle and when the watcher stops, and loads them at the start.

If a map could not be saved, the next watcher just has to run all tests once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from watchtest.core.model import Failure, Lane, Result
from watchtest.core.state import Idle, Knowledge, KnownTest, LaneState, State
from watchtest.selection.map_file import load
from watchtest.selection.selector import Selector

log = logging.getLogger(__name__)
REST_S = 3.0
"""A lane must be idle for this long, so that saving does not disturb the next run."""
LEAVE_LIMIT_S = 10.0


def map_file(folder: Path, lane: Lane) -> Path:
    return folder / f"{lane.value}.map"


class MapKeeper:
    """Saves and loads the test maps of a workspace in `folder`."""

    def __init__(self, folder: Path, selectors: Mapping[Lane, Selector]) -> None:
        self._folder = folder
        self._selectors = {lane: selector for lane, selector in selectors.items() if selector.is_recording}
        self._kept: dict[Lane, float | None] = {}
        """By lane: the time of the verdict that its map was last saved with. A tree may have several verdicts."""
        self._task: asyncio.Task[None] | None = None

    def resume(self, lane: Lane, earlier: Mapping[str, Result]) -> Knowledge:
        """Return what an earlier watcher knew: no verdict, but a base for the next selection.

        `earlier` are results from the history, which is written before the map: a test that is red there is red.
        """
        selector = self._selectors.get(lane)
        kept = load(map_file(self._folder, lane)) if selector is not None else None
        if selector is None or kept is None:
            return Knowledge()
        selector.resume(kept)
        red = {test: result for test, result in earlier.items() if result.outcome.is_red and test in kept.results}
        results = {**kept.results, **red}
        tests = {test: KnownTest(_with_failure(result), kept.base.id, "") for test, result in results.items()}
        return Knowledge(tests=tests, base=kept.base, box=kept.box)

    def tick(self, state: State, now: float) -> None:
        """Save a map that has changed if its lane is idle."""
        if self._task is not None and not self._task.done():
            return
        for lane in state.ranked:
            at = lane.knowledge.at
            if self._is_due(lane) and isinstance(lane.activity, Idle) and at is not None and now - at > REST_S:
                self._task = asyncio.create_task(self._keep(lane), name=f"keep the map of the {lane.lane.value} lane")
                return

    async def close(self, state: State) -> None:
        """Save all maps that have changed, within a time limit."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=LEAVE_LIMIT_S)
        for lane in state.ranked:
            if self._is_due(lane):
                try:
                    async with asyncio.timeout(LEAVE_LIMIT_S):
                        await self._keep(lane)
                except TimeoutError:
                    log.warning("the map of the %s lane could not be saved in time", lane.lane.value)

    def _is_due(self, lane: LaneState) -> bool:
        knowledge = lane.knowledge
        is_whole = knowledge.base is not None and knowledge.is_complete and knowledge.provisional is None
        return is_whole and lane.lane in self._selectors and self._kept.get(lane.lane) != knowledge.at

    async def _keep(self, lane: LaneState) -> None:
        knowledge, base = lane.knowledge, lane.knowledge.base
        assert base is not None
        try:
            file = map_file(self._folder, lane.lane)
            await self._selectors[lane.lane].keep(file, base, knowledge.results, knowledge.box)
        except OSError as error:
            log.warning("the map of the %s lane cannot be saved: %s", lane.lane.value, error)
        except Exception:
            log.exception("the map of the %s lane could not be saved because of a bug", lane.lane.value)
        self._kept[lane.lane] = knowledge.at


def _with_failure(result: Result) -> Result:
    """Return the result with a failure if it is red: a red result must have one."""
    if not result.outcome.is_red or result.failure is not None:
        return result
    return Result(result.test, result.outcome, result.duration_s, Failure("unknown", "as an earlier watcher saw it"))
