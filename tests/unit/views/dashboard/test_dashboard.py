"""The text for the pager, the commands of pagers and editors, and the remaining time of a run."""

from __future__ import annotations

import pytest
from support.watcher_states import NOON, Story, failed, passed

from watchtest.views.dashboard.dashboard import editor, pager
from watchtest.views.dashboard.failure_list import output_text
from watchtest.views.dashboard.navigation import ViewState
from watchtest.views.dashboard.styled_rows import StyledRow, from_document, to_document
from watchtest.views.eta import eta_s

A, B = "tests/test_a.py::test_a", "tests/test_a.py::test_b"


def everything(name: str) -> str | None:
    return f"/usr/bin/{name}"


def nothing(_name: str) -> str | None:
    return None


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("vim", ["vim", "+7", "a b.py"]),
        ("/usr/bin/nvim -n", ["/usr/bin/nvim", "-n", "+7", "a b.py"]),
        ("code --wait", ["code", "--wait", "--goto", "a b.py:7"]),
        ("hx", ["hx", "a b.py:7"]),
        ("pycharm", ["pycharm", "--line", "7", "a b.py"]),
        ("ed", ["ed", "a b.py"]),
        ("'", ["'", "a b.py"]),
    ],
)
def test_an_editor_is_told_the_line_in_its_own_way(command: str, words: list[str]) -> None:
    assert editor({"EDITOR": command}, everything, "a b.py", 7) == words
    assert editor({"EDITOR": "x", "VISUAL": command}, everything, "a b.py", 7) == words


def test_without_a_setting_the_installed_programs_are_used() -> None:
    assert editor({}, everything, "a.py", 7) == ["editor", "+7", "a.py"]
    assert editor({}, nothing, "a.py", 7) == []
    assert pager({}, everything) == ["less", "-+F"]
    assert pager({"PAGER": "most -s"}, everything) == ["most", "-s"]
    assert pager({}, nothing) == []


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


def test_a_row_survives_its_way_to_another_process() -> None:
    rows = [
        StyledRow(),
        StyledRow(left=(("a", "bold"),), right=(("b", ""),), band="red", bar=0.5),
        StyledRow(groups=((("h", "bold"), (" help ", "dim")),)),
        StyledRow(left=(("long", ""),), bar=0.0, wraps=True),
    ]
    assert [from_document(to_document(row)) for row in rows] == rows
    assert to_document(StyledRow()) == {}
