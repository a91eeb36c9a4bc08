"""Notifications in a terminal: which sequence a terminal understands, also inside tmux, and the bytes of it.

A watcher without a terminal relays its notifications to the attached terminals, which get them with their next screen.

Names of tests are untrusted: text in a sequence contains no control character, C1 included, and no `;`, so that it can
neither end the sequence early nor add a field. Sequences end with ST, not BEL, so that no terminal rings by mistake.
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
    """How a terminal notifies the user."""

    BELL = "bell"
    OSC9 = "osc9"
    OSC777 = "osc777"
    OSC99 = "osc99"


def sequence(method: TerminalMethod, notification: Notification, identity: str) -> str:
    """Return the bytes that show a notification. `identity` (letters, digits, `-`) lets the next one replace it."""
    title, text = harmless(notification.title, TITLE_LENGTH), harmless(notification.text, TEXT_LENGTH)
    match method:
        case TerminalMethod.BELL:
            return BELL
        case TerminalMethod.OSC9:
            # A leading number would make it a command of ConEmu.
            return f"{_OSC}9;watchtest: {title}{': ' if text else ''}{text}{_ST}"
        case TerminalMethod.OSC777:
            return f"{_OSC}777;notify;{title};{text or 'watchtest'}{_ST}"
        case TerminalMethod.OSC99:
            urgency = 1 if notification.kind.is_trouble else 0
            first = f"{_OSC}99;i={identity}:d=0:u={urgency}:e=1:p=title;{_encoded(title)}{_ST}"
            return f"{first}{_OSC}99;i={identity}:d=1:e=1:p=body;{_encoded(text or 'watchtest')}{_ST}"
        case _:
            assert_never(method)


def withdrawal(method: TerminalMethod, identity: str) -> str:
    """Return the bytes that remove a notification; only OSC 99 can do that."""
    return f"{_OSC}99;i={identity}:p=close;{_ST}" if method is TerminalMethod.OSC99 else ""


def through_tmux(text: str) -> str:
    """Wrap a sequence so that tmux passes it on to the terminal around it."""
    escaped = text.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{escaped}{_ST}"


def harmless(text: str, limit: int) -> str:
    return " ".join(cut(text, limit).replace(";", ",").split())


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")


TMUX_LIMIT_S = 1.0
TMUX_QUERY = "#{allow-passthrough}\n#{client_termname}\n#{client_termtype}"

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
"""By TERM_PROGRAM, the end of TERM, or the first word of the version that a terminal reports."""
VARIABLES = {
    "KITTY_WINDOW_ID": TerminalMethod.OSC99,
    "WEZTERM_PANE": TerminalMethod.OSC777,
    "GHOSTTY_RESOURCES_DIR": TerminalMethod.OSC777,
}
DOUBTFUL = ("VTE_VERSION", "KONSOLE_VERSION")
"""Only some builds of these support OSC 777 and the others ignore it, so the bell rings as well."""


@dataclass(frozen=True, slots=True)
class TerminalSupport:
    """How this terminal can notify the user."""

    method: TerminalMethod
    is_doubtful: bool = False
    """It may ignore the sequence, so the bell rings as well."""
    is_in_tmux: bool = False

    @property
    def fallback(self) -> str:
        """How it stands in for the desktop, in words."""
        if self.method is TerminalMethod.BELL:
            return "using the terminal bell"
        return f"using notifications of the terminal (OSC {self.method.value.removeprefix('osc')})"


def recognise(environ: Mapping[str, str], method: TerminalMethod | None = None) -> TerminalSupport:
    """Return what the terminal of this environment supports: the given method, or at least the bell."""
    if method is not None:
        return TerminalSupport(method)
    if environ.get("STY") or environ.get("ZELLIJ"):
        return TerminalSupport(TerminalMethod.BELL)  # screen and zellij pass nothing else on
    for variable in ("TERM_PROGRAM", "LC_TERMINAL", "TERM"):
        if (found := _by_name(environ.get(variable, ""))) is not None:
            return TerminalSupport(found)
    for variable, found in VARIABLES.items():
        if environ.get(variable):
            return TerminalSupport(found)
    if any(environ.get(variable) for variable in DOUBTFUL):
        return TerminalSupport(TerminalMethod.OSC777, is_doubtful=True)
    return TerminalSupport(TerminalMethod.BELL)


def recognise_through_tmux(answer: str, method: TerminalMethod | None = None) -> TerminalSupport:
    """Return what the terminal around tmux supports, from the answer of tmux to `TMUX_QUERY`."""
    passthrough, term, version = (*answer.split("\n"), "", "", "")[:3]
    method = method or _by_name(version) or _by_name(term)
    if passthrough in ("off", "0") or method in (None, TerminalMethod.BELL):
        return TerminalSupport(TerminalMethod.BELL)
    # "on" holds for visible panes only; before tmux 3.3 there was no such option, and everything was passed on.
    return TerminalSupport(method, is_doubtful=passthrough in ("on", "1"), is_in_tmux=True)


def _by_name(name: str) -> TerminalMethod | None:
    """`WezTerm`, `xterm-kitty`, `foot-extra`, `iTerm2 3.5.0`, `kitty(0.31.0)`."""
    words = name.lower().removeprefix("xterm-").replace("(", " ").split()
    first = words[0] if words else ""
    return PROGRAMS.get(first) or PROGRAMS.get(first.partition("-")[0])


@dataclass(frozen=True, slots=True)
class TerminalAccess:
    """Access to the terminal. `write` must be the only way to it, so that no drawing is interrupted."""

    write: Callable[[str], None]
    is_lent: Callable[[], bool] = lambda: False
    """Whether another program (an editor, a pager) has it: among its sequences, only the bell is harmless."""


class TerminalChannel:
    def __init__(
        self,
        access: TerminalAccess,
        environ: Mapping[str, str],
        workspace: str,
        method: TerminalMethod | None = None,
        ask_tmux: Callable[[Mapping[str, str]], Awaitable[str]] | None = None,
    ) -> None:
        """`method` is what the user wants; None means the best that the terminal supports."""
        self._access = access
        self._environ = environ
        self._identity = f"watchtest-{hashlib.sha256(workspace.encode('utf-8', 'replace')).hexdigest()[:12]}"
        self._method = method
        self._ask_tmux = ask_tmux or run_tmux
        self.support = TerminalSupport(method or TerminalMethod.BELL)

    @property
    def fallback(self) -> str:
        return self.support.fallback

    async def describe(self) -> str:
        if self._environ.get("TMUX"):
            # Ask each time: a session may move from one terminal to another.
            self.support = recognise_through_tmux(await self._ask_tmux(self._environ), self._method)
        else:
            self.support = recognise(self._environ, self._method)
        return self.support.fallback

    async def deliver(self, notification: Notification) -> None:
        await self.describe()
        text = sequence(self.support.method, notification, self._identity)
        if self._access.is_lent():
            self._send(BELL)
        else:
            self._send(self._wrapped(text) + (BELL if self.support.is_doubtful else ""))

    async def withdraw(self) -> None:
        text = withdrawal(self.support.method, self._identity)
        if text and not self._access.is_lent():
            self._send(self._wrapped(text))

    async def close(self) -> None:
        pass

    def _wrapped(self, text: str) -> str:
        return through_tmux(text) if self.support.is_in_tmux else text

    def _send(self, text: str) -> None:
        try:
            self._access.write(text)
        except (OSError, ValueError) as error:  # the terminal is gone, or its stream was closed
            raise DeliveryFailed(f"cannot write to the terminal: {error}") from error


async def run_tmux(environ: Mapping[str, str]) -> str:
    """Return the answer of tmux to `TMUX_QUERY`, or `off` if there is none, so that only the bell is used."""
    try:
        process = await asyncio.create_subprocess_exec(
            *("tmux", "display-message", "-p", "-t", environ.get("TMUX_PANE", ""), TMUX_QUERY),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(environ),
        )
    except OSError:
        return "off"
    try:
        output, _ = await asyncio.wait_for(process.communicate(), TMUX_LIMIT_S)
    except TimeoutError:
        return "off"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode("utf-8", "replace") if process.returncode == 0 else "off"


Document = dict[str, Any]


class NotificationRelay:
    """Holds the live notification for the attached terminals; `method` is what the user wants, if anything."""

    fallback = "attached terminals show them"

    def __init__(self) -> None:
        self.method: TerminalMethod | None = None
        self._number = 0
        self.live: Document | None = None
        """The live notification as a document; each has its own number."""

    async def describe(self) -> str:
        return self.fallback

    async def deliver(self, notification: Notification) -> None:
        self._number += 1
        self.live = {
            "number": self._number,
            "kind": notification.kind.value,
            "title": notification.title,
            "lines": list(notification.lines),
            "lane": notification.lane.value,
            "verdict": notification.verdict.value,
            "form": self.method.value if self.method else None,
        }

    async def withdraw(self) -> None:
        self.live = None

    async def close(self) -> None:
        pass


def relayed_notification(document: Document) -> tuple[Notification, TerminalMethod | None]:
    """Return the notification of a document. Raises ValueError, TypeError or KeyError if it is malformed."""
    lines = tuple(map(str, document["lines"]))
    notification = Notification(
        NotificationKind(document["kind"]),
        str(document["title"]),
        lines,
        Lane(document["lane"]),
        Verdict(document["verdict"]),
    )
    return notification, TerminalMethod(document["form"]) if document["form"] else None
