"""The terminal we run in as a way to the user: which sequence it knows, and tmux in between.

The terminals of those who are attached to a watcher that has none: each hears of a notice with its next screen.

The bytes that make a terminal tell the user. Pure.

Names of tests are hostile: whatever stands in a sequence holds no control character, C1 included, and no `;`, so it can
neither end the sequence early nor add a field to it. Each ends with ST, not BEL: who does not know it rings nothing.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never

from watchtest.core.model import Lane, Verdict
from watchtest.core.text import cut
from watchtest.views.notify.notifications import DeliveryFailed, Notification, NotificationKind

BELL = "\a"
_OSC, _ST = "\x1b]", "\x1b\\"
TITLE_LENGTH = 120
TEXT_LENGTH = 300


class TerminalMethod(StrEnum):
    """How a terminal is told."""

    BELL = "bell"
    OSC9 = "osc9"
    OSC777 = "osc777"
    OSC99 = "osc99"


def sequence(form: TerminalMethod, notice: Notification, identity: str) -> str:
    """What tells `notice`. `identity` (letters, digits, `-`) lets the next one take its place, where that is known."""
    title, text = harmless(notice.title, TITLE_LENGTH), harmless(notice.text, TEXT_LENGTH)
    match form:
        case TerminalMethod.BELL:
            return BELL
        case TerminalMethod.OSC9:
            # A number in front would make it a command of ConEmu's, which has the same beginning.
            return f"{_OSC}9;watchtest: {title}{': ' if text else ''}{text}{_ST}"
        case TerminalMethod.OSC777:
            return f"{_OSC}777;notify;{title};{text or 'watchtest'}{_ST}"
        case TerminalMethod.OSC99:
            urgency = 1 if notice.kind.is_trouble else 0
            first = f"{_OSC}99;i={identity}:d=0:u={urgency}:e=1:p=title;{_encoded(title)}{_ST}"
            return f"{first}{_OSC}99;i={identity}:d=1:e=1:p=body;{_encoded(text or 'watchtest')}{_ST}"
        case _:
            assert_never(form)


def withdrawal(form: TerminalMethod, identity: str) -> str:
    """What takes a notice away again; only one form can."""
    return f"{_OSC}99;i={identity}:p=close;{_ST}" if form is TerminalMethod.OSC99 else ""


def through_tmux(text: str) -> str:
    """For the terminal around tmux, which takes what it does not know only in this envelope."""
    escaped = text.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{escaped}{_ST}"


def harmless(text: str, limit: int) -> str:
    return " ".join(cut(text, limit).replace(";", ",").split())


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")


TMUX_S = 1.0
TMUX_QUESTION = "#{allow-passthrough}\n#{client_termname}\n#{client_termtype}"

PROGRAMS = {
    "iterm.app": TerminalMethod.OSC9,
    "iterm2": TerminalMethod.OSC9,
    "kitty": TerminalMethod.OSC99,
    "wezterm": TerminalMethod.OSC777,
    "ghostty": TerminalMethod.OSC777,
    "foot": TerminalMethod.OSC777,
    "warpterminal": TerminalMethod.OSC9,
    "contour": TerminalMethod.OSC777,
}
"""By TERM_PROGRAM, the end of TERM, or the first word that a terminal answers when it is asked for its version."""
MARKS = {
    "KITTY_WINDOW_ID": TerminalMethod.OSC99,
    "WEZTERM_PANE": TerminalMethod.OSC777,
    "GHOSTTY_RESOURCES_DIR": TerminalMethod.OSC777,
}
DOUBTFUL = ("VTE_VERSION", "KONSOLE_VERSION")
"""Some builds of these know OSC 777, and the others pass over it: the bell rings as well."""


@dataclass(frozen=True, slots=True)
class TerminalSupport:
    """How to tell this terminal. Doubtful: it may pass over the sequence, so the bell rings as well."""

    form: TerminalMethod
    is_doubtful: bool = False
    is_in_tmux: bool = False

    @property
    def words(self) -> str:
        if self.form is TerminalMethod.BELL:
            return "the bell rings instead"
        return f"this terminal shows them instead (OSC {self.form.value.removeprefix('osc')})"


def recognise(environ: Mapping[str, str], wish: TerminalMethod | None = None) -> TerminalSupport:
    """The terminal that these variables tell of. One that is not known for more has a bell."""
    if wish is not None:
        return TerminalSupport(wish)
    if environ.get("STY") or environ.get("ZELLIJ"):
        return TerminalSupport(TerminalMethod.BELL)  # these keep the rest to themselves
    names = (environ.get("TERM_PROGRAM", ""), environ.get("LC_TERMINAL", ""), environ.get("TERM", ""))
    for name in names:
        if (form := _by_name(name)) is not None:
            return TerminalSupport(form)
    for mark, form in MARKS.items():
        if environ.get(mark):
            return TerminalSupport(form)
    is_doubtful = any(environ.get(mark) for mark in DOUBTFUL)
    return (
        TerminalSupport(TerminalMethod.OSC777, is_doubtful=True)
        if is_doubtful
        else TerminalSupport(TerminalMethod.BELL)
    )


def recognise_through_tmux(answer: str, wish: TerminalMethod | None = None) -> TerminalSupport:
    """What tmux says of the terminal around it, and whether it lets anything through but the bell."""
    passthrough, term, version = (*answer.split("\n"), "", "", "")[:3]
    form = wish or _by_name(version) or _by_name(term)
    if passthrough in ("off", "0") or form in (None, TerminalMethod.BELL):
        return TerminalSupport(TerminalMethod.BELL)
    # "on" is for panes that are seen; before tmux 3.3 there was no such option, and all of it went through.
    return TerminalSupport(form, is_doubtful=passthrough in ("on", "1"), is_in_tmux=True)


def _by_name(name: str) -> TerminalMethod | None:
    """`WezTerm`, `xterm-kitty`, `foot-extra`, `iTerm2 3.5.0`, `kitty(0.31.0)`."""
    words = name.lower().removeprefix("xterm-").replace("(", " ").split()
    first = words[0] if words else ""
    return PROGRAMS.get(first) or PROGRAMS.get(first.partition("-")[0])


@dataclass(frozen=True, slots=True)
class TerminalAccess:
    """To the terminal. `write` must be the one way to it, so that nothing falls into the middle of a drawing."""

    write: Callable[[str], None]
    is_lent: Callable[[], bool] = lambda: False
    """Another program (an editor, a pager) has it: in the middle of its sequences only the bell is harmless."""


class TerminalChannel:
    def __init__(
        self,
        access: TerminalAccess,
        environ: Mapping[str, str],
        workspace: str,
        form: TerminalMethod | None = None,
        ask_tmux: Callable[[Mapping[str, str]], Awaitable[str]] | None = None,
    ) -> None:
        """`form`: as the user wants it; None: as the terminal knows it."""
        self._access = access
        self._environ = environ
        self._identity = f"watchtest-{hashlib.sha256(workspace.encode('utf-8', 'replace')).hexdigest()[:12]}"
        self._form = form
        self._ask_tmux = ask_tmux or ask_tmux_itself
        self.known = TerminalSupport(form or TerminalMethod.BELL)

    @property
    def words(self) -> str:
        return self.known.words

    async def look(self) -> str:
        if self._environ.get("TMUX"):
            # Each time: a session is taken from one terminal to another.
            self.known = recognise_through_tmux(await self._ask_tmux(self._environ), self._form)
        else:
            self.known = recognise(self._environ, self._form)
        return self.known.words

    async def deliver(self, notice: Notification) -> None:
        await self.look()
        text = sequence(self.known.form, notice, self._identity)
        if self._access.is_lent():
            self._send(BELL)
        else:
            self._send(self._wrapped(text) + (BELL if self.known.is_doubtful else ""))

    async def withdraw(self) -> None:
        text = withdrawal(self.known.form, self._identity)
        if text and not self._access.is_lent():
            self._send(self._wrapped(text))

    async def close(self) -> None:
        pass

    def _wrapped(self, text: str) -> str:
        return through_tmux(text) if self.known.is_in_tmux else text

    def _send(self, text: str) -> None:
        try:
            self._access.write(text)
        except (OSError, ValueError) as error:  # the terminal has gone, or its stream was closed
            raise DeliveryFailed(f"the terminal cannot be written: {error}") from error


async def ask_tmux_itself(environ: Mapping[str, str]) -> str:
    """Its answer, or `off` where it has none: then it gets the bell alone."""
    try:
        process = await asyncio.create_subprocess_exec(
            *("tmux", "display-message", "-p", "-t", environ.get("TMUX_PANE", ""), TMUX_QUESTION),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(environ),
        )
    except OSError:
        return "off"
    try:
        output, _ = await asyncio.wait_for(process.communicate(), TMUX_S)
    except TimeoutError:
        return "off"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode("utf-8", "replace") if process.returncode == 0 else "off"


Document = dict[str, Any]


class NotificationRelay:
    """Holds the live notice until the next. `form`: as the user wants to be told; None: as each terminal knows it."""

    words = "whoever is attached is told instead"

    def __init__(self) -> None:
        self.form: TerminalMethod | None = None
        self._number = 0
        self._live: Document | None = None

    def live(self) -> Document | None:
        """The notice for whoever asks; its number is another for each."""
        return self._live

    async def look(self) -> str:
        return self.words

    async def deliver(self, notice: Notification) -> None:
        self._number += 1
        self._live = {
            "number": self._number,
            "kind": notice.kind.value,
            "title": notice.title,
            "lines": list(notice.lines),
            "lane": notice.lane.value,
            "verdict": notice.verdict.value,
            "form": self.form.value if self.form else None,
        }

    async def withdraw(self) -> None:
        self._live = None

    async def close(self) -> None:
        pass


def relayed_notification(document: Document) -> tuple[Notification, TerminalMethod | None]:
    """The notice that such a document is of; ValueError, TypeError, KeyError: of none."""
    lines = tuple(map(str, document["lines"]))
    notice = Notification(
        NotificationKind(document["kind"]),
        str(document["title"]),
        lines,
        Lane(document["lane"]),
        Verdict(document["verdict"]),
    )
    return notice, TerminalMethod(document["form"]) if document["form"] else None
