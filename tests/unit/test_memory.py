"""Imported objects are frozen once, after the first run; what runs leave behind is soon collected and returned."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from support.watcher_states import Story, passed

from watchtest.memory import TRIM_EVERY_S, Housekeeping


class Leftover:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_all_is_set_aside_after_the_first_run_and_only_once() -> None:
    keeping, story = Housekeeping(), Story()
    keeping.tick(story.state, 0.0)
    assert gc.get_freeze_count() == 0
    keeping.tick(story.run("t1", passed("a")).state, 1.0)
    count = gc.get_freeze_count()
    assert count > 10_000
    kept: list[list[int]] = [[] for _ in range(100)]
    keeping.tick(story.run("t2", passed("a")).state, 100.0)
    assert gc.get_freeze_count() <= count, "later objects are still collected"
    assert len(kept) == 100


def test_leftovers_are_found_before_there_are_many() -> None:
    Housekeeping().tick(Story().run("t1", passed("a")).state, 0.0)
    leftover = weakref.ref(Leftover())
    made = 0
    while leftover() is not None:
        made += 1
        Leftover()
        assert made < 100_000


def test_memory_is_given_back_now_and_then_and_only_after_runs() -> None:
    given_back: list[float] = []
    now = 1000.0
    keeping, story = Housekeeping(lambda: given_back.append(now)), Story()
    keeping.tick(story.state, now)
    assert given_back == []
    for run in range(4):
        story.run(f"t{run}", passed("a"))
        keeping.tick(story.state, now)
        now += TRIM_EVERY_S / 2
    assert given_back == [1000.0, 1000.0 + TRIM_EVERY_S]
    for _ in range(10):
        now += TRIM_EVERY_S
        keeping.tick(story.state, now)
    assert len(given_back) == 3, "an idle watcher has nothing to return"
