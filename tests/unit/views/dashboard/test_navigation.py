"""How key presses change the view of the dashboard."""

from __future__ import annotations

from watchtest.views.dashboard.actions import Action
from watchtest.views.dashboard.key_reader import KeyDecoder
from watchtest.views.dashboard.navigation import ViewState, press


def after(*keys: str, failures: int = 3) -> ViewState:
    view = ViewState()
    for key in keys:
        view, _ = press(view, key, failures)
    return view


def test_keys_are_decoded_whole_however_their_bytes_come() -> None:
    decoder = KeyDecoder()
    assert decoder.feed("aä/".encode()) == ["a", "ä", "/"]
    assert decoder.feed(b"\xc3") == []
    assert decoder.feed(b"\xa4\x1b[A\x1bOB\r\x7f") == ["ä", "up", "down", "enter", "backspace"]
    assert decoder.feed(b"\x1b[1;5C\x1b[200~q\x1b]11;rgb:0/0/0\x07\x1bOP\x00\x01") == ["q"]


def test_the_letters_of_a_sequence_that_comes_in_pieces_are_no_keys() -> None:
    decoder = KeyDecoder()
    assert [decoder.feed(piece) for piece in (b"x\x1b", b"[", b"A", b"\x1bO", b"B")] == [
        ["x"],
        [],
        ["up"],
        [],
        ["down"],
    ]
    assert not decoder.is_incomplete
    assert decoder.feed(b"\x1b") == []
    assert decoder.is_incomplete
    assert (decoder.flush(), decoder.flush()) == (["escape"], [])
    assert decoder.feed(b"\x1b[1;") == []
    assert decoder.flush() == []
    assert decoder.feed(b"q") == ["q"]


def test_a_filter_is_typed_kept_and_cleared() -> None:
    assert after("/", "q", "x", "backspace", "h") == ViewState(filter="qh", is_typing=True)
    assert after("/", "q", "enter") == ViewState(filter="q")
    assert after("/", "q", "escape") == ViewState()
    assert after("/", "q", "enter", "escape") == ViewState()
    assert after("/", "q", "up", "enter", "/") == ViewState(is_typing=True)
    assert press(ViewState(is_typing=True), "q", 0)[1] is None


def test_failures_are_selected_up_and_down_and_wrap_around() -> None:
    assert [after(*["down"] * times).selected for times in (1, 2, 3, 4)] == [0, 1, 2, 0]
    assert after("up").selected == 2
    assert after("down", failures=0).selected is None
    assert press(ViewState(selected=9), "up", 3)[0].selected == 1  # some have passed since
    assert press(ViewState(), "enter", 3)[1] is None
    assert press(ViewState(selected=0), "enter", 3)[1] is Action.OUTPUT


def test_panels_come_and_go() -> None:
    assert after("h").panel == "help"
    assert after("h", "h").panel == ""
    assert after("h", "w").panel == "why"
    assert after("w", "escape") == ViewState()
