"""What keys make of a look, and what wishes mean for the watcher."""

from __future__ import annotations

from support.watcher_states import NOON, Story, failed, passed

from watchtest.core.events import (
    CancelRequested,
    PauseRequested,
    PolicyRequested,
    QuitRequested,
    ResumeRequested,
    RunRequested,
)
from watchtest.core.model import All, Lane, Only, Policy
from watchtest.views.dashboard.key_reader import KeyDecoder
from watchtest.views.dashboard.navigation import HELP, HINTS, NOTHING_CHOSEN, PANELS, WISHES, Action, ViewState, press
from watchtest.views.dashboard.watcher_screen import events_of

A, B = "tests/test_a.py::test_a", "tests/test_a.py::test_b"
SAVE = Lane.SAVE


def after(*keys: str, failures: int = 3) -> ViewState:
    look = ViewState()
    for key in keys:
        look, _ = press(look, key, failures)
    return look


def test_keys_are_told_whole_however_their_bytes_come() -> None:
    keystrokes = KeyDecoder()
    assert keystrokes.told("aä/".encode()) == ["a", "ä", "/"]
    assert keystrokes.told(b"\xc3") == []
    assert keystrokes.told(b"\xa4\x1b[A\x1bOB\r\x7f") == ["ä", "up", "down", "enter", "backspace"]
    assert keystrokes.told(b"\x1b[1;5C\x1b[200~q\x1b]11;rgb:0/0/0\x07\x1bOP\x00\x01") == ["q"]


def test_the_letters_of_a_sequence_that_comes_in_pieces_are_no_keys() -> None:
    keystrokes = KeyDecoder()
    assert [keystrokes.told(piece) for piece in (b"x\x1b", b"[", b"A", b"\x1bO", b"B")] == [
        ["x"],
        [],
        ["up"],
        [],
        ["down"],
    ]
    assert not keystrokes.is_waiting
    assert keystrokes.told(b"\x1b") == []
    assert keystrokes.is_waiting
    assert (keystrokes.rest(), keystrokes.rest()) == (["escape"], [])
    assert keystrokes.told(b"\x1b[1;") == []
    assert keystrokes.rest() == []
    assert keystrokes.told(b"q") == ["q"]


def test_a_filter_is_typed_kept_and_cleared() -> None:
    assert after("/", "q", "x", "backspace", "h") == ViewState(filter="qh", is_typing=True)
    assert after("/", "q", "enter") == ViewState(filter="q")
    assert after("/", "q", "escape") == ViewState()
    assert after("/", "q", "enter", "escape") == ViewState()
    assert after("/", "q", "up", "enter", "/") == ViewState(is_typing=True)
    assert press(ViewState(is_typing=True), "q", 0)[1] is None


def test_failures_are_chosen_up_and_down_and_round() -> None:
    assert [after(*["down"] * times).chosen for times in (1, 2, 3, 4)] == [0, 1, 2, 0]
    assert after("up").chosen == 2
    assert after("down", failures=0).chosen == NOTHING_CHOSEN
    assert press(ViewState(chosen=9), "up", 3)[0].chosen == 1  # some have passed since
    assert press(ViewState(), "enter", 3)[1] is None
    assert press(ViewState(chosen=0), "enter", 3)[1] is Action.OUTPUT


def test_panels_come_and_go() -> None:
    assert after("h").panel == "help"
    assert after("h", "h").panel == ""
    assert after("h", "w").panel == "why"
    assert after("w", "escape") == ViewState()


def test_each_key_is_explained_and_does_what_it_says() -> None:
    for key, wish in WISHES.items():
        assert press(ViewState(), key, 0) == (ViewState(), wish)
        assert press(ViewState(), key.upper(), 0) == (ViewState(), wish)
    for key in {*WISHES, *PANELS, "/"} - {"?"}:
        assert key in HELP
        assert key in HINTS
    assert press(ViewState(), "x", 0) == (ViewState(), None)


def test_a_wish_becomes_an_event_of_the_top_lane() -> None:
    story = Story().run("t1", failed(A), passed(B))
    state, look = story.state, ViewState()
    assert events_of(Action.QUIT, look, state, NOON) == (QuitRequested(SAVE, NOON),)
    assert events_of(Action.ALL, look, state, NOON) == (
        PolicyRequested(SAVE, NOON, None),
        RunRequested(SAVE, NOON, All(because="asked for by key")),
    )
    assert events_of(Action.CANCEL, look, state, NOON) == (CancelRequested(SAVE, NOON),)
    assert events_of(Action.KILL, look, state, NOON) == (CancelRequested(SAVE, NOON, is_kill=True),)
    assert events_of(Action.PAUSE, look, state, NOON) == (PauseRequested(SAVE, NOON),)
    paused = story.on(PauseRequested(SAVE, NOON)).state
    assert events_of(Action.PAUSE, look, paused, NOON) == (ResumeRequested(SAVE, NOON),)
    assert events_of(Action.OUTPUT, look, state, NOON) == ()


def test_failed_only_is_a_switch() -> None:
    story = Story().run("t1", failed(A), passed(B))
    on = events_of(Action.FAILED, ViewState(), story.state, NOON)
    run = RunRequested(SAVE, NOON, Only((A,), because="1 known to fail"))
    assert on == (PolicyRequested(SAVE, NOON, Policy.FAILED), run)
    story.on(on[0])
    assert story.state.top.effective_policy is Policy.FAILED
    off = events_of(Action.FAILED, ViewState(), story.state, NOON)
    assert off == (PolicyRequested(SAVE, NOON, None),)
    assert story.on(off[0]).state.top.effective_policy is story.state.top.policy


def test_rerun_is_the_last_tests_again_or_those_that_a_filter_names() -> None:
    story = Story()
    assert events_of(Action.RERUN, ViewState(), story.state, NOON) == (RunRequested(SAVE, NOON, None),)
    story.run("t1", failed(A), passed(B))
    assert events_of(Action.RERUN, ViewState(), story.state, NOON) == (
        RunRequested(SAVE, NOON, All(because="asked for again")),
    )
    story.on(RunRequested(SAVE, NOON, Only((A,), because="asked for by name")))
    (event,) = events_of(Action.RERUN, ViewState(), story.state, NOON)
    assert event == RunRequested(SAVE, NOON, Only((A,), because="the last tests again, asked for"))
    (event,) = events_of(Action.RERUN, ViewState(filter="test_b"), story.state, NOON)
    assert event == RunRequested(SAVE, NOON, Only((B,), because="asked for: names with 'test_b'"))
    assert events_of(Action.RERUN, ViewState(filter="nothing"), story.state, NOON) == ()
