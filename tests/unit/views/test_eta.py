"""The remaining time of a run."""

from __future__ import annotations

import pytest
from support.watcher_states import NOON, Story, passed

from watchtest.views.eta import eta_s

A, B = "tests/test_a.py::test_a", "tests/test_a.py::test_b"


def test_the_remaining_time_is_estimated_from_earlier_durations() -> None:
    names = [f"tests/test_a.py::test_{number}" for number in range(20)]
    story = Story().run("t1", *map(passed, names))
    assert eta_s(story.state.top, NOON) is None
    story.change("x.py").sync("t2").collect(*names)
    assert eta_s(story.state.top, story.now) == pytest.approx(2.0)
    began = story.now
    story.results(*map(passed, names[:10]))
    # Ten of them should have taken a second but took four; the same is expected of the others.
    assert eta_s(story.state.top, began + 4.0) == pytest.approx(4.0, rel=0.3)


def test_the_remaining_time_of_unknown_tests_is_unknown_at_first() -> None:
    story = Story().change("x.py").sync("t1").collect(A, B)
    assert eta_s(story.state.top, story.now) is None
    story.results(passed(A))
    assert eta_s(story.state.top, story.now) == pytest.approx(0.1, rel=0.5)
