"""`POST /look`: the watcher checks its files now, and settles only when a run that began after that has ended."""

from __future__ import annotations

import asyncio

import pytest
from support.control_server import Bench, play

from watchtest.client.watcher import RequestRefused
from watchtest.core.events import EVERYTHING
from watchtest.core.model import Outcome, Policy

UNSETTLED = {"lane": "save", "settled": False, "waits_for": None}
SETTLED = {"lane": "save", "settled": True, "waits_for": None}


async def rests(watcher: Bench) -> None:
    while (await watcher.get("/look?lane=save")) != SETTLED:  # noqa: ASYNC110  asked over the socket, as clients do
        await asyncio.sleep(0.005)


def test_a_look_is_a_change_of_everything_and_rests_with_its_verdict() -> None:
    async def story(watcher: Bench) -> None:
        assert await watcher.post("/look") == UNSETTLED
        await watcher.until("it runs", lambda: len(watcher.runs.started) == 1)
        assert EVERYTHING in watcher.runs.started[0].paths
        assert await watcher.get("/look") == UNSETTLED
        watcher.runs.outcomes.put_nowait(Outcome.PASSED)
        await asyncio.wait_for(rests(watcher), 10)
        assert not watcher.runs.started[0].run.is_forced, "a tree that has not changed is not run again"

    play(story)


def test_a_look_during_a_run_waits_for_the_run_after_it() -> None:
    async def story(watcher: Bench) -> None:
        await watcher.post("/look")
        await watcher.until("it runs", lambda: len(watcher.runs.started) == 1)
        await watcher.post("/look", {"lane": "save"})
        watcher.runs.outcomes.put_nowait(Outcome.PASSED)
        await watcher.until("it runs once more", lambda: len(watcher.runs.started) == 2)
        assert await watcher.get("/look") == UNSETTLED
        watcher.runs.outcomes.put_nowait(Outcome.FAILED)
        await asyncio.wait_for(rests(watcher), 10)

    play(story)


def test_a_lane_that_is_off_and_unknown_words_are_refused() -> None:
    async def story(watcher: Bench) -> None:
        for path in ("/look?lane=commit", "/look?lane=save&lane=x", "/look?tree=1"):
            with pytest.raises(RequestRefused):
                await watcher.get(path)
        with pytest.raises(RequestRefused, match="the stage lane is off"):
            await watcher.post("/look", {"lane": "stage"})
        with pytest.raises(RequestRefused, match="unknown member"):
            await watcher.post("/look", {"paths": ["a.py"]})

    play(story, policy=Policy.OFF)
