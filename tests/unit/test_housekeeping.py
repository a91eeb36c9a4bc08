"""What was imported is set aside once, after the first run, and what runs leave behind is found soon after."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from view_states import Story, passed

from watchtest.housekeeping import Housekeeping


class Leftover:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_all_is_set_aside_after_the_first_run_and_only_once() -> None:
    keeping, story = Housekeeping(), Story()
    gc.unfreeze()
    keeping.tick(story.state)
    assert gc.get_freeze_count() == 0
    keeping.tick(story.run("t1", passed("a")).state)
    assert gc.get_freeze_count() > 10_000
    count = gc.get_freeze_count()
    kept = [[] for _ in range(100)]
    keeping.tick(story.run("t2", passed("a")).state)
    assert gc.get_freeze_count() <= count, "what came later is looked after as ever"
    assert len(kept) == 100


def test_leftovers_are_found_before_there_are_many() -> None:
    Housekeeping().tick(Story().run("t1", passed("a")).state)
    leftover = weakref.ref(Leftover())
    made = 0
    while leftover() is not None:
        made += 1
        Leftover()
        assert made < 100_000
