"""A terminal gets the sequence that it supports, and never a control character from the name of a test."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchtest.core.model import Lane, Verdict
from watchtest.views.notify.notifications import DeliveryFailed, Notification, NotificationKind
from watchtest.views.notify.terminal_channel import (
    TerminalAccess,
    TerminalChannel,
    TerminalMethod,
    TerminalSupport,
    recognise,
    recognise_through_tmux,
    run_tmux,
    sequence,
    through_tmux,
    withdrawal,
)

RED = Notification(
    NotificationKind.RED, "✘ shop: 1 test failed", ("a.py::test_x", "and; more"), Lane.SAVE, Verdict.FAILED
)
BARE = Notification(NotificationKind.PASSED, "✔ shop: passed 2 tests", (), Lane.SAVE, Verdict.PASSED)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("form", "written"),
    [
        (TerminalMethod.BELL, "\a"),
        (TerminalMethod.OSC9, "\x1b]9;watchtest: ✘ shop: 1 test failed: a.py::test_x, and, more\x1b\\"),
        (TerminalMethod.OSC777, "\x1b]777;notify;✘ shop: 1 test failed;a.py::test_x, and, more\x1b\\"),
        (
            TerminalMethod.OSC99,
            f"\x1b]99;i=me:d=0:u=1:e=1:p=title;{encoded(RED.title)}\x1b\\"
            f"\x1b]99;i=me:d=1:e=1:p=body;{encoded('a.py::test_x, and, more')}\x1b\\",
        ),
    ],
)
def test_each_form_has_its_sequence(form: TerminalMethod, written: str) -> None:
    assert sequence(form, RED, "me") == written


def test_a_notice_without_a_text_still_has_one_where_it_must() -> None:
    assert sequence(TerminalMethod.OSC9, BARE, "me") == "\x1b]9;watchtest: ✔ shop: passed 2 tests\x1b\\"
    assert sequence(TerminalMethod.OSC777, BARE, "me") == "\x1b]777;notify;✔ shop: passed 2 tests;watchtest\x1b\\"


FRAMES = {
    TerminalMethod.BELL: r"\a",
    TerminalMethod.OSC9: r"\x1b\]9;watchtest: ([^;]*)\x1b\\",
    TerminalMethod.OSC777: r"\x1b\]777;notify;([^;]*);([^;]+)\x1b\\",
    TerminalMethod.OSC99: r"\x1b\]99;i=me:d=0:u=1:e=1:p=title;[A-Za-z0-9+/=]*\x1b\\"
    r"\x1b\]99;i=me:d=1:e=1:p=body;[A-Za-z0-9+/=]+\x1b\\",
}
hostile = st.text(st.sampled_from("\x1b\\];:\a\x9c\x9d\x90\x9b\n\r\t\x00\x7f\u202e\ud800[0P^_ab4✘"))


@given(title=hostile, name=hostile, form=st.sampled_from(TerminalMethod))
def test_no_name_can_leave_its_sequence(title: str, name: str, form: TerminalMethod) -> None:
    written = sequence(form, Notification(NotificationKind.RED, title, (name,), Lane.SAVE, Verdict.FAILED), "me")
    frame = re.fullmatch(FRAMES[form], written, re.DOTALL)
    assert frame is not None
    assert all(text.isprintable() for text in frame.groups())
    assert len(written) < 2000


def test_a_long_name_is_cut() -> None:
    written = sequence(
        TerminalMethod.OSC9,
        Notification(NotificationKind.RED, "t" * 9999, ("x" * 99999,), Lane.SAVE, Verdict.FAILED),
        "me",
    )
    assert len(written) < 500


def test_only_one_form_can_take_a_notice_away() -> None:
    assert withdrawal(TerminalMethod.OSC99, "me") == "\x1b]99;i=me:p=close;\x1b\\"
    assert not any(withdrawal(form, "me") for form in TerminalMethod if form is not TerminalMethod.OSC99)


@pytest.mark.parametrize(
    ("environ", "known"),
    [
        ({"TERM_PROGRAM": "iTerm.app", "TERM": "xterm-256color"}, TerminalSupport(TerminalMethod.OSC9)),
        ({"LC_TERMINAL": "iTerm2", "TERM": "xterm-256color"}, TerminalSupport(TerminalMethod.OSC9)),
        ({"TERM": "xterm-kitty"}, TerminalSupport(TerminalMethod.OSC99)),
        ({"KITTY_WINDOW_ID": "1", "TERM": "xterm-256color"}, TerminalSupport(TerminalMethod.OSC99)),
        ({"TERM_PROGRAM": "WezTerm"}, TerminalSupport(TerminalMethod.OSC777)),
        ({"WEZTERM_PANE": "0", "TERM": "xterm-256color"}, TerminalSupport(TerminalMethod.OSC777)),
        ({"TERM_PROGRAM": "ghostty", "TERM": "xterm-ghostty"}, TerminalSupport(TerminalMethod.OSC777)),
        ({"TERM": "xterm-ghostty"}, TerminalSupport(TerminalMethod.OSC777)),
        ({"TERM": "foot"}, TerminalSupport(TerminalMethod.OSC777)),
        ({"TERM": "foot-extra"}, TerminalSupport(TerminalMethod.OSC777)),
        ({"VTE_VERSION": "7600", "TERM": "xterm-256color"}, TerminalSupport(TerminalMethod.OSC777, is_doubtful=True)),
        (
            {"KONSOLE_VERSION": "230804", "TERM": "xterm-256color"},
            TerminalSupport(TerminalMethod.OSC777, is_doubtful=True),
        ),
        ({"TERM_PROGRAM": "Apple_Terminal", "TERM": "xterm-256color"}, TerminalSupport(TerminalMethod.BELL)),
        ({"TERM_PROGRAM": "vscode", "TERM": "xterm-256color"}, TerminalSupport(TerminalMethod.BELL)),
        ({"TERM": "alacritty"}, TerminalSupport(TerminalMethod.BELL)),
        ({"TERM": "linux"}, TerminalSupport(TerminalMethod.BELL)),
        ({}, TerminalSupport(TerminalMethod.BELL)),
        ({"STY": "1.pts", "KITTY_WINDOW_ID": "1", "TERM": "screen"}, TerminalSupport(TerminalMethod.BELL)),
        ({"ZELLIJ": "0", "TERM": "xterm-kitty"}, TerminalSupport(TerminalMethod.BELL)),
    ],
)
def test_a_terminal_is_known_by_its_variables(environ: Mapping[str, str], known: TerminalSupport) -> None:
    assert recognise(environ) == known


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        ("0\nxterm-kitty\nkitty(0.31.0)\n", TerminalSupport(TerminalMethod.BELL)),
        ("off\nxterm-kitty\n\n", TerminalSupport(TerminalMethod.BELL)),
        ("off", TerminalSupport(TerminalMethod.BELL)),
        ("", TerminalSupport(TerminalMethod.BELL)),
        ("1\nxterm-kitty\n\n", TerminalSupport(TerminalMethod.OSC99, is_doubtful=True, is_in_tmux=True)),
        ("on\nxterm-256color\niTerm2 3.5.0\n", TerminalSupport(TerminalMethod.OSC9, is_doubtful=True, is_in_tmux=True)),
        ("all\nxterm-256color\nWezTerm 20240203\n", TerminalSupport(TerminalMethod.OSC777, is_in_tmux=True)),
        ("\nxterm-kitty\n\n", TerminalSupport(TerminalMethod.OSC99, is_in_tmux=True)),
        ("all\nxterm-256color\n\n", TerminalSupport(TerminalMethod.BELL)),
    ],
)
def test_in_tmux_the_terminal_around_it_counts_and_what_tmux_lets_through(answer: str, known: TerminalSupport) -> None:
    assert recognise_through_tmux(answer) == known


async def _tmux(_environ: Mapping[str, str]) -> str:
    return "on\nxterm-256color\n\n"


def delivered(environ: Mapping[str, str], form: TerminalMethod | None = None, *, is_lent: bool = False) -> list[str]:
    written: list[str] = []

    async def deliver() -> None:
        channel = TerminalChannel(TerminalAccess(written.append, lambda: is_lent), environ, "/shop", form, _tmux)
        await channel.deliver(RED)
        await channel.withdraw()
        await channel.close()

    asyncio.run(deliver())
    return written


def test_a_form_that_the_user_named_is_taken() -> None:
    assert delivered({"TERM": "xterm-kitty"}, TerminalMethod.OSC9) == [sequence(TerminalMethod.OSC9, RED, "")]
    assert delivered({"TERM": "xterm-kitty"}, TerminalMethod.BELL) == ["\a"]
    assert delivered({"TMUX": "/tmp/x,1,0"}, TerminalMethod.OSC9) == [
        through_tmux(sequence(TerminalMethod.OSC9, RED, "")) + "\a"
    ]


def test_the_bell_rings_as_well_where_the_sequence_may_be_passed_over() -> None:
    assert delivered({"VTE_VERSION": "7600"}) == [sequence(TerminalMethod.OSC777, RED, "") + "\a"]


def test_a_terminal_that_an_editor_has_hears_the_bell_alone() -> None:
    assert delivered({"TERM": "xterm-kitty"}, is_lent=True) == ["\a"]
    assert delivered({"TMUX": "/tmp/x,1,0"}, TerminalMethod.OSC99, is_lent=True) == ["\a"]


def test_kitty_shows_and_closes_notifications_under_one_name_per_workspace() -> None:
    told, untold = delivered({"TERM": "xterm-kitty"})
    [name, other] = re.findall(r"99;i=(watchtest-[0-9a-f]+):", told)
    assert name == other
    assert untold == withdrawal(TerminalMethod.OSC99, name)


def test_escapes_are_doubled_for_tmux() -> None:
    assert through_tmux("\x1b]9;x\x1b\\") == "\x1bPtmux;\x1b\x1b]9;x\x1b\x1b\\\x1b\\"


def test_a_tmux_that_is_not_there_means_the_bell() -> None:
    assert asyncio.run(run_tmux({"PATH": "/nonexistent", "TMUX": "/nonexistent,1,0"})) == "off"
    assert asyncio.run(run_tmux({"PATH": "/usr/bin:/bin", "TMUX": "/nonexistent,1,0"})) == "off"


def test_a_terminal_that_has_gone_is_a_failed_delivery() -> None:
    def write(_text: str) -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(DeliveryFailed, match="Input/output error"):
        asyncio.run(TerminalChannel(TerminalAccess(write), {}, "/shop", TerminalMethod.BELL).deliver(RED))
