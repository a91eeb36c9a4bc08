"""Whole screens of the dashboard at three sizes, without colour and with a fixed clock."""

from __future__ import annotations

import io
import time
from dataclasses import replace

import pytest
from rich.console import Console
from support.view_output import screen
from support.watcher_states import BOX, NOON, Story, failed, passed, skipped, start

from watchtest.core.events import (
    CancelRequested,
    Halted,
    NoteAdded,
    PauseRequested,
    RunEnded,
    SelectionMade,
    TimerFired,
)
from watchtest.core.model import All, Lane, Only, Policy, Problem, StopReason
from watchtest.views.dashboard.actions import KEYS
from watchtest.views.dashboard.failure_list import ScreenContext, output_text, selectable_failures
from watchtest.views.dashboard.header import BANDS
from watchtest.views.dashboard.live_screen import LiveScreen, render
from watchtest.views.dashboard.navigation import ViewState
from watchtest.views.dashboard.watcher_screen import screen_rows as screen_rows
from watchtest.views.mood import Colour

T = "tests/test_cart.py::test_"


def text(rows: list[str]) -> str:
    return "\n".join(rows)


def red_story() -> Story:
    story = Story().box().run("3f2a91c4d5e6", passed(T + "a"), passed(T + "b"), skipped(T + "c"))
    message = "AssertionError: assert 3 == 4\n +  where 3 = total([1, 2])"
    return story.run("77aa91c4d5e6", passed(T + "a"), failed(T + "b", 14, message), failed(T + "c", 40))


def running_story() -> Story:
    story = red_story().change("shop/cart.py").sync("99aa").collect(*(f"{T}{number}" for number in range(40)), T + "c")
    return story.results(failed(T + "9", 90), passed(T + "c")).change("x.py")


def test_green_at_80_by_24() -> None:
    story = Story().box().run("3f2a91c4d5e6", passed(T + "a"), passed(T + "b"), skipped(T + "c"))
    assert screen(story.state, 80, 24, story.now + 3) == [
        " ✔ PASSED 2 tests, 1 skipped         shop · save · 3f2a91c4 on main* · 3.0s ago",
        " waiting for a change",
        *[""] * 19,
        " box  docker 1a2b3c4d5e6f · image python:3.12 · running · Python 3.12.1",
        " runs ✔                                                                   1 run",
        " h help  q quit  r rerun  a all  f failed  c cancel  p pause  / filter  o output",
    ]


def test_red_at_80_by_24() -> None:
    story = red_story()
    assert screen(story.state, 80, 24, story.now + 3) == [
        " ✘ FAILED 2 of 3 tests               shop · save · 77aa91c4 on main* · 3.0s ago",
        " waiting for a change",
        "",
        " ✘ tests/test_cart.py:14  test_b  new",
        "     > assert total([1, 2]) == 4",
        "     AssertionError: assert 3 == 4",
        "      +  where 3 = total([1, 2])",
        " ✘ tests/test_cart.py:40  test_c  new",
        "     > assert total([1, 2]) == 4",
        "     assert 3 == 4",
        *[""] * 11,
        " box  docker 1a2b3c4d5e6f · image python:3.12 · running · Python 3.12.1",
        " runs ✔✘                                                                 2 runs",
        " h help  q quit  r rerun  a all  f failed  c cancel  p pause  / filter  o output",
    ]


def test_while_running_the_old_verdict_stays_and_new_failures_come_first_at_60_by_15() -> None:
    story = running_story()
    assert screen(story.state, 60, 15, story.now + 3) == [
        " ✘ FAILED 2 of 3 tests  save · 77aa91c4 on main* · 5.3s ago",
        " running 2/41 ━───────────────────── about 5.9s left · 4.3s",
        " 1 change pending: x.py",
        " ✘ tests/test_cart.py:90  test_9  new",
        "     > assert total([1, 2]) == 4",
        "     assert 3 == 4",
        " ✘ tests/test_cart.py:14  test_b  new",
        "     > assert total([1, 2]) == 4",
        "     AssertionError: assert 3 == 4",
        "      +  where 3 = total([1, 2])",
        " ✔ test_c  passes now",
        "",
        " box  docker 1a2b3c4d5e6f · image python:3.12 · running · P…",
        " runs ✔✘                                             3 runs",
        " h help  q quit  r rerun  a all  f failed  c cancel  p pause",
    ]


def test_running_at_200_by_50_uses_the_whole_width() -> None:
    story = running_story()
    rows = screen(story.state, 200, 50, story.now + 3)
    assert rows[0].startswith(" ✘ FAILED 2 of 3 tests  ")
    assert rows[0].endswith(" shop · save · 77aa91c4 on main* · 5.3s ago")
    assert len(rows[0]) == 199
    assert rows[1] == f" running 2/41 {'━' * 8}{'─' * 154} about 5.9s left · 4.3s"
    assert rows[-1].startswith(" h help  q quit  r rerun")
    assert rows[-1].endswith("w why  e edit  k kill")


def test_help_explains_each_key() -> None:
    story = red_story()
    rows = screen(story.state, 80, 24, story.now, ViewState(panel="help"))
    assert [row.split("  ")[0].strip() for row in rows[-16:-3]] == [binding.label for binding in KEYS]
    assert " f   toggle failed tests only" in rows


def test_help_takes_two_columns_on_a_small_screen() -> None:
    story = red_story()
    assert screen(story.state, 60, 15, story.now, ViewState(panel="help"))[-10:-3] == [
        " r   run the last tests again  ↑↓  select a failure",
        " a   run all tests             e   open it in $EDITOR",
        " f   toggle failed tests only  o   page the full output",
        " c   cancel the run            w   why these tests ran",
        " k   kill the run, no cleanup  h   show or hide this help",
        " p   pause or resume           q   quit; the box stays",
        " /   filter tests by name",
    ]


def test_why_tells_what_the_last_tests_ran_for() -> None:
    story = Story().run("t1", passed("a"), passed("b"))
    reasons = ("1 of 2: shop/cart.py: total changed",)
    narrow = Only((T + "a",), "shop/cart.py: total changed", is_proof=True, reasons=reasons)
    lane = story.state.top
    assert lane.knowledge.run is not None
    knowledge = replace(lane.knowledge, run=replace(lane.knowledge.run, selection=narrow))
    state = replace(story.state, lanes={lane.lane: replace(lane, knowledge=knowledge)})
    rows = screen(state, 80, 24, story.now, ViewState(panel="why"))
    shown = [row.strip() for row in rows if row.strip()]
    assert "why 1 test (shop/cart.py: total changed)" in shown
    assert reasons[0] in shown


def test_why_tells_what_a_selection_that_became_everything_is_for() -> None:
    story = Story(start(policy=Policy.AFFECTED)).change("shop.py").sync("t1")
    why = All(because="shop.py: total changed")
    assert " why tests affected by the change" in screen(story.state, 80, 24, story.now, ViewState("why"))
    story.on(SelectionMade(Lane.SAVE, story.now, story.working.run.id, why))
    story.collect(T + "a")
    assert " why all tests (shop.py: total changed)" in screen(story.state, 80, 24, story.now, ViewState("why"))
    story.end("t1", [passed(T + "a")])
    assert " why all tests (shop.py: total changed)" in screen(story.state, 80, 24, story.now, ViewState("why"))


def test_what_is_wrong_can_be_read_to_its_end_where_there_is_room() -> None:
    problem = Problem("engine", "no such thing " * 12 + "the end", "do this and that, and then another thing " * 3)
    story = Story().change("x.py").breaks(problem)
    rows = screen(story.state, 60, 15, story.now)
    assert rows[1] == " engine: no such thing no such thing no such thing no"
    assert rows[2] == "   such thing no such thing no such thing no such thing no"
    assert any(row.endswith("the end") for row in rows)
    assert any(row.endswith("another thing") for row in rows)
    assert rows[-1].startswith(" h help")
    rows = screen(red_story().change("x.py").breaks(problem).state, 60, 9, story.now)
    assert rows[1].endswith("…")


def test_what_a_box_does_not_isolate_is_on_the_screen() -> None:
    box = replace(BOX, engine="local", image="/a/long/way/to/python", isolation="the network, reading files of others")
    story = Story().box(box).run("t1", passed(T + "a"))
    rows = screen(story.state, 80, 24, story.now)
    assert rows[-4:-2] == [
        " box  local 1a2b3c4d5e6f · image /a/long/way/to/python · running · Python",
        "      3.12.1 · not isolated: the network, reading files of others",
    ]


def test_more_failures_than_rows_are_counted() -> None:
    story = Story().run("t1", *(failed(f"{T}{number:02}", number + 1) for number in range(30)))
    rows = screen(story.state, 60, 15, story.now)
    assert rows[2] == " ✘ tests/test_cart.py:1  test_00  new"
    assert rows[-3] == " and 20 more"


def test_with_little_room_each_failure_says_its_message_before_its_source() -> None:
    story = Story().run("t1", *(failed(f"{T}{number}", number + 1) for number in range(5)))
    rows = screen(story.state, 60, 15, story.now)
    assert rows[-5:-2] == ["     assert 3 == 4", " ✘ tests/test_cart.py:5  test_4  new", "     assert 3 == 4"]


def test_a_lane_that_broke_says_what_to_do_and_when_it_tries_again() -> None:
    story = red_story().change("x.py").breaks()
    rows = screen(story.state, 80, 24, story.now)
    assert rows[0].startswith(" ✘ FAILED 2 of 3 tests")
    assert rows[1:5] == [
        " engine: the engine does not answer on /var/run/docker.sock",
        " start it with: systemctl start docker",
        " retrying in 0.5s (attempt 1 failed)",
        " 1 change pending: x.py",
    ]
    assert " runs ✔✘!" in rows[-2]


def test_an_error_without_a_failure_shows_the_end_of_the_output() -> None:
    story = Story().change().sync("t1").end("t1", [], exit_code=3, raw_output="one\n\x1b[31mINTERNALERROR> boom\n")
    rows = screen(story.state, 80, 24, story.now)
    assert rows[0].startswith(" ✘ error: the runner exited with 3 ")
    assert rows[3:6] == [" end of the runner's output:", "   one", "   INTERNALERROR> boom"]


def test_held_changes_paused_lanes_notes_and_other_lanes_are_shown() -> None:
    story = Story(start(Lane.SAVE, Lane.COMMIT)).run("t1", passed(T + "a"))
    story.change("x.py").on(NoteAdded(Lane.SAVE, story.now, "setup: pip install"))
    assert " setup: pip install" in screen(story.state, 80, 24, story.now)
    story.on(CancelRequested(Lane.SAVE, story.now))
    assert any("stopping (cancelled)" in row for row in screen(story.state, 80, 24, story.now))
    story.on(RunEnded(Lane.SAVE, story.now, story.working.run.id, Halted(StopReason.CANCELLED)))
    story.on(PauseRequested(Lane.SAVE, story.now))
    rows = screen(story.state, 80, 24, story.now)
    assert rows[1].split() == ["commit", "?", "no", "verdict", "yet", "starting"]
    assert rows[2:4] == [" paused: press p to resume", " 1 change pending: x.py (until the next save or command)"]


def test_text_from_tests_is_neither_markup_nor_a_control_sequence() -> None:
    evil = "[bold red]x[/] \x1b[2J\x1b]0;t\x07[link=http://x]y[/link]\n\tz :smile:"
    story = Story().box(replace(BOX, image=evil)).run("t1", failed(f"{T}[{evil}]", message=evil))
    story.on(NoteAdded(Lane.SAVE, NOON, evil))
    rows = text(screen(story.state, 200, 30, story.now))
    assert "[bold red]x[/] [link=http://x]y[/link]" in rows
    assert ":smile:" in rows
    assert "\x1b" not in rows


@pytest.mark.parametrize(("width", "height"), [(1, 1), (10, 3), (20, 5), (40, 8), (79, 19), (500, 100)])
def test_every_size_is_filled_exactly(width: int, height: int) -> None:
    for story in (Story(), red_story(), running_story(), red_story().change("x.py").breaks()):
        rows = screen(story.state, width, height, story.now)
        assert len(rows) == height


def test_wide_characters_do_not_break_the_edge() -> None:
    story = Story().run("t1", failed(T + "日本語" * 30, message="漢字" * 100))
    out = io.StringIO()
    console = Console(file=out, width=60, height=15, color_system=None)
    console.print(render(screen_rows(story.state, now=story.now, height=15), 60))
    assert out.getvalue().count("\n") == 15


def drawing_cost(passing: int) -> float:
    """Return the least processor time of drawing a screen with 200 red tests and `passing` green ones."""
    results = [passed(f"{T}{number}") for number in range(passing)] + [failed(f"{T}x{number}") for number in range(200)]
    story = Story().run("t1", *results)
    console = Console(file=io.StringIO(), width=200, height=50, force_terminal=True)
    costs = []
    for _ in range(7):
        began = time.process_time()
        console.print(render(screen_rows(story.state, now=story.now, height=50), 200))
        costs.append(time.process_time() - began)
    return min(costs)


def test_a_screen_of_ten_thousand_tests_costs_little_more_than_one_of_hundreds() -> None:
    assert drawing_cost(9_800) < 5 * drawing_cost(100)


def test_a_screen_of_thousands_of_long_failures_is_drawn_quickly() -> None:
    assert failures_cost(lines=200) < 5 * failures_cost(lines=1), "it once grew with the length of every message"


def failures_cost(lines: int) -> float:
    """Return the best time for drawing 2,000 failures whose messages have this many lines."""
    message = "assert 1 == 2\n" + "\n".join(f"  - line {number} of a long difference" for number in range(lines))
    story = Story().run("t1", *(failed(f"{T}{number}", number + 1, message) for number in range(2_000)))
    costs = []
    for selected in (None, 1_000) * 3:
        began = time.process_time()
        rows = screen_rows(story.state, now=story.now, height=24, view=ViewState(selected=selected))
        assert len(selectable_failures(story.state.top, ViewState())) == 2_000
        costs.append(time.process_time() - began)
        assert len(rows) == 24
    return min(costs)


def terminal() -> tuple[io.StringIO, Console]:
    out = io.StringIO()
    return out, Console(file=out, width=60, height=15, force_terminal=True, highlight=False, _environ={"TERM": "xterm"})


def test_the_dashboard_draws_on_change_and_on_age_and_not_more_often() -> None:
    out, console = terminal()
    story = red_story()
    began = story.now

    def drawn() -> int:
        return out.getvalue().count("FAILED 2 of 3")

    with LiveScreen(lambda view, height, now: screen_rows(story.state, now=now, height=height), console) as dashboard:
        dashboard.refresh(began)
        assert drawn() == 1
        story.change("x.py")
        dashboard.refresh(began + 0.05)
        assert drawn() == 1
        dashboard.tick(began + 0.2)
        assert drawn() == 2
        dashboard.tick(began + 0.9)
        assert drawn() == 2
        dashboard.tick(began + 1.3)
        assert drawn() == 3
        console.size = (70, 20)  # type: ignore[assignment]
        dashboard.tick(began + 1.31)
        assert drawn() == 4


def test_what_has_not_changed_is_drawn_again_only_to_repair_it() -> None:
    out, console = terminal()
    story = red_story()
    with LiveScreen(lambda view, height, now: screen_rows(story.state, now=now, height=height), console) as dashboard:
        dashboard.refresh(story.now + 60)
        for seconds in range(1, 10):
            dashboard.tick(story.now + 60 + seconds)
        assert out.getvalue().count("1m ago") == 1
        dashboard.tick(story.now + 71)
        assert out.getvalue().count("1m ago") == 2
        dashboard.tick(story.now + 120)
        assert out.getvalue().count("2m ago") == 1


def test_leaving_gives_the_terminal_back_even_after_a_crash() -> None:
    out, console = terminal()

    def crash() -> None:
        with LiveScreen(
            lambda view, height, now: screen_rows(Story().state, now=now, height=height), console
        ) as dashboard:
            dashboard.refresh(NOON)
            raise RuntimeError("bug")

    with pytest.raises(RuntimeError, match="bug"):
        crash()
    assert out.getvalue().startswith("\x1b[?1049h")
    assert "\x1b[?1049l" in out.getvalue()
    assert out.getvalue().rindex("\x1b[?25h") > out.getvalue().rindex("\x1b[?25l")


def test_the_chosen_failure_is_shown_at_length_and_the_others_by_their_heads() -> None:
    message = "\n".join(f"line {number}" for number in range(30))
    story = Story().run("t1", *(failed(f"{T}{number:02}", number + 1, message) for number in range(20)))
    rows = screen(story.state, 80, 24, story.now, ViewState(selected=12))
    chosen = rows.index(" ▸ tests/test_cart.py:13  test_12  new")
    assert rows[chosen - 1] == " ✘ tests/test_cart.py:12  test_11  new"
    assert rows[chosen + 2 : chosen + 5] == ["     line 0", "     line 1", "     line 2"]
    assert " ✘ tests/test_cart.py:14  test_13  new" in rows[chosen:]
    for number in range(25):  # the selected one may be gone by now
        assert any("▸" in row for row in screen(story.state, 60, 15, story.now, ViewState(selected=number)))


def test_a_filter_shows_red_and_green_tests_that_match() -> None:
    story = red_story()
    rows = screen(story.state, 80, 24, story.now, ViewState(filter="CART _b", is_typing=True))
    assert " ✘ tests/test_cart.py:14  test_b  new" in rows
    assert not any(":40" in row or "::test_a" in row for row in rows)
    assert rows[-1].startswith(" /CART _b▏")
    assert rows[-1].endswith(" 1 of 3 tests")
    green = screen(story.state, 80, 24, story.now, ViewState(filter="test_a"))
    assert any(row.startswith(" ✔ tests/test_cart.py::test_a ") and row.endswith(" 0.1s") for row in green)
    assert " no known test matches 'nothing'" in screen(story.state, 80, 24, story.now, ViewState(filter="nothing"))


def test_a_failure_links_to_its_file() -> None:
    story = Story().run("t1", failed("tests/test ä.py::test_x", 14))
    out = io.StringIO()
    console = Console(file=out, width=80, height=10, force_terminal=True, legacy_windows=False)
    console.print(render(screen_rows(story.state, now=story.now, height=10, context=ScreenContext("/my work")), 80))
    assert "file:///my%20work/tests/test%20%C3%A4.py#14" in out.getvalue()


def test_lines_of_a_difference_have_colours_of_their_own() -> None:
    story = Story().run("t1", failed(T + "a", 1, "assert 'a' == 'b'\n  - b\n  + a\n  ? ^"))
    found = {text.strip(): style for row in screen_rows(story.state, now=0.0, height=24) for text, style in row.left}
    assert [found[line] for line in ("assert 'a' == 'b'", "- b", "+ a", "? ^")] == ["red", "magenta", "cyan", "dim"]


def test_a_test_that_is_red_by_chance_is_marked_and_red() -> None:
    story = red_story()
    context = ScreenContext(flaky=frozenset({T + "b"}))
    rows = screen_rows(story.state, now=story.now, height=24, context=context)
    shown = ["".join(text for text, _ in row.left) for row in rows]
    assert " ✘ tests/test_cart.py:14  test_b  new · flaky" in shown
    assert " ✘ tests/test_cart.py:40  test_c  new" in shown


def colour(story: Story) -> Colour:
    band = screen_rows(story.state, now=story.now, height=24)[0].band
    return next(colour for colour, style in BANDS.items() if style == band)


def test_green_is_the_colour_of_the_code_as_it_is() -> None:
    story = Story().box().run("t1", passed(T + "a"))
    assert colour(story) is Colour.GREEN
    story.change("x.py")
    assert colour(story) is Colour.GREY
    assert screen(story.state, 80, 24, story.now)[0].startswith(" ? testing 1 change · last: passed 1 test ")
    story.on(RunEnded(Lane.SAVE, story.now, story.working.run.id, Halted(StopReason.CANCELLED)))
    assert colour(story) is Colour.GREY
    story.run("t2", passed(T + "a"))
    assert colour(story) is Colour.GREEN
    story.on(PauseRequested(Lane.SAVE, story.now))
    assert colour(story) is Colour.GREEN
    story.change("y.py")
    assert colour(story) is Colour.GREY


def test_a_failure_that_is_being_confirmed_is_amber() -> None:
    story = Story().box().run("t1", passed(T + "a"), passed(T + "b"))
    story.change("x.py").sync("t2").collect(T + "a", T + "b").results(failed(T + "a"))
    assert colour(story) is Colour.AMBER
    assert screen(story.state, 80, 24, story.now)[0].startswith(" ? 1 failure so far · last: passed 2 tests ")
    story.results(passed(T + "b")).confirm(1)
    rows = screen(story.state, 100, 24, story.now)
    assert rows[0].startswith(" ? confirming 1 failure · last: passed 2 tests ")
    assert rows[1].startswith(" running 2/2 · confirming in a fresh process")
    assert " runs ✔?" in rows[-2]
    story.end("t2", [failed(T + "a"), passed(T + "b")])
    assert colour(story) is Colour.RED


def test_green_pales_while_no_test_can_be_run() -> None:
    story = Story().box().run("t1", passed(T + "a")).change("x.py").breaks()
    assert colour(story) is Colour.GREY
    story.now += 1
    story.on(TimerFired(Lane.SAVE, story.now))
    assert colour(story) is Colour.GREY  # trying again
    story.box()
    assert colour(story) is Colour.GREY
    assert screen(story.state, 80, 24, story.now)[0].startswith(" ? testing 1 change · last: passed 1 test ")


def test_what_was_said_once_can_be_read_a_while_and_until_the_next_run() -> None:
    story = Story(start(Lane.SAVE, Lane.COMMIT)).change("x.py").sync("t1")
    story.on(NoteAdded(Lane.SAVE, story.now, "setup: pip install"))
    for number in range(4):
        story.on(NoteAdded(Lane.SAVE, story.now, f"left out file {number}", is_kept=True))
    story.on(NoteAdded(Lane.COMMIT, story.now, "left out a submodule", is_kept=True))
    story.collect(T + "a").results(passed(T + "a")).end("t1", [passed(T + "a")])
    rows = screen(story.state, 80, 24, story.now)
    assert rows[3:6] == [" left out file 2", " left out file 3", " commit: left out a submodule"]
    assert " left out file 3" in screen(story.state, 80, 24, story.now + 600)
    story.now += 600
    story.run("t2", passed(T + "a"))
    assert " left out file 3" not in screen(story.state, 80, 24, story.now)


def test_a_lane_that_broke_shows_what_the_failed_command_has_said() -> None:
    problem = Problem("setup", "`pip install x` failed\nCollecting x\nERROR: no matching \x1b[2Jdistribution", "look")
    story = Story().change("x.py").breaks(problem, is_transient=False)
    rows = screen(story.state, 80, 24, story.now)
    assert rows[1:3] == [" setup: `pip install x` failed", " look"]
    assert "     ERROR: no matching distribution" in rows
    assert "ERROR: no matching distribution" in output_text(story.state.top, ViewState())
    story = red_story().change("x.py").breaks(problem, is_transient=False)
    rows = screen(story.state, 60, 15, story.now)
    assert "     ERROR: no matching distribution" in rows
    assert " ✘ tests/test_cart.py:40  test_c  new" in rows


class Gone(io.StringIO):
    """A terminal whose window was closed."""

    def flush(self) -> None:
        raise OSError(5, "Input/output error")


def test_a_terminal_that_has_gone_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    out, console = terminal()
    monkeypatch.setattr("sys.stdout", out)
    with LiveScreen(lambda view, height, now: screen_rows(Story().state, now=now, height=height), console) as dashboard:
        console.file = Gone()
        dashboard.refresh(NOON)
        dashboard.tick(NOON + 10)


def test_a_console_that_does_not_know_a_sign_gets_a_question_mark() -> None:
    out = io.BytesIO()
    console = Console(
        file=io.TextIOWrapper(out, encoding="ascii", write_through=True),
        force_terminal=True,
        _environ={"TERM": "xterm"},
    )
    state = red_story().state
    with LiveScreen(lambda view, height, now: screen_rows(state, now=now, height=height), console) as dashboard:
        dashboard.refresh(NOON)
    assert b"? FAILED 2 of 3" in out.getvalue()
