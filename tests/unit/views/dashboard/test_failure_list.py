"""The failures as text for the pager."""

from __future__ import annotations

from support.watcher_states import Story, failed, passed

from watchtest.views.dashboard.failure_list import output_text
from watchtest.views.dashboard.navigation import ViewState

A, B = "tests/test_a.py::test_a", "tests/test_a.py::test_b"


def test_the_page_holds_every_failure_whole_and_no_control_sequence() -> None:
    evil = "\x1b[2J\x1b]0;title\x07"
    story = Story().run(
        "t1", failed(A, text=f"the whole\ntraceback{evil}", output=f"printed{evil}"), failed(B, message="b fails")
    )
    lane = story.state.top
    text = output_text(lane, ViewState())
    assert text.index("the whole\ntraceback") < text.index("output of the test:\nprinted") < text.index("b fails")
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "b fails" not in output_text(lane, ViewState(selected=0))
    assert "b fails" in output_text(lane, ViewState(selected=7))
    assert "No failures" in output_text(Story().run("t1", passed(A)).state.top, ViewState())
