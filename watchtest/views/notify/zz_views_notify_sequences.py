"""The bytes that make a terminal tell the user. Pure.

Names of tests are hostile: whatever stands in a sequence holds no control character, C1 included, and no `;`, so it can
neither end the sequence early nor add a field to it. Each ends with ST, not BEL: who does not know it rings nothing.
"""

from __future__ import annotations

import base64
from enum import StrEnum
from typing import assert_never

from watchtest.core.text import cut
from watchtest.views.notify.notices import Notice

BELL = "\a"
_OSC, _ST = "\x1b]", "\x1b\\"
TITLE_LENGTH = 120
TEXT_LENGTH = 300


class Form(StrEnum):
    """How a terminal is told."""

    BELL = "bell"
    OSC9 = "osc9"
    OSC777 = "osc777"
    OSC99 = "osc99"


def sequence(form: Form, notice: Notice, identity: str) -> str:
    """What tells `notice`. `identity` (letters, digits, `-`) lets the next one take its place, where that is known."""
    title, text = harmless(notice.title, TITLE_LENGTH), harmless(notice.text, TEXT_LENGTH)
    match form:
        case Form.BELL:
            return BELL
        case Form.OSC9:
            # A number in front would make it a command of ConEmu's, which has the same beginning.
            return f"{_OSC}9;watchtest: {title}{': ' if text else ''}{text}{_ST}"
        case Form.OSC777:
            return f"{_OSC}777;notify;{title};{text or 'watchtest'}{_ST}"
        case Form.OSC99:
            urgency = 1 if notice.kind.is_trouble else 0
            first = f"{_OSC}99;i={identity}:d=0:u={urgency}:e=1:p=title;{_encoded(title)}{_ST}"
            return f"{first}{_OSC}99;i={identity}:d=1:e=1:p=body;{_encoded(text or 'watchtest')}{_ST}"
        case _:
            assert_never(form)


def withdrawal(form: Form, identity: str) -> str:
    """What takes a notice away again; only one form can."""
    return f"{_OSC}99;i={identity}:p=close;{_ST}" if form is Form.OSC99 else ""


def through_tmux(text: str) -> str:
    """For the terminal around tmux, which takes what it does not know only in this envelope."""
    escaped = text.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{escaped}{_ST}"


def harmless(text: str, limit: int) -> str:
    return " ".join(cut(text, limit).replace(";", ",").split())


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
