"""Single keys from the terminal, and what each asks for. Reads; decides nothing.

The terminal is put in cbreak mode (Ctrl-C stays a signal) and put back on leaving, whatever the reason.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from watchtest.core.events import CancelAsked, Event, PauseAsked, QuitAsked, ResumeAsked, RunAsked
from watchtest.core.model import All, Policy
from watchtest.core.selection import choose
from watchtest.core.state import State
from watchtest.views.text import clean

try:
    import termios
    import tty
except ImportError:  # Windows
    HAS_TERMIOS = False
else:
    HAS_TERMIOS = True

FUNCTION_KEY = re.compile("\x1bO.")
HELP_KEY, WHY_KEY = "h", "w"
HINTS = {"q": "quit", "r": "rerun", "f": "failed", "c": "cancel", "p": "pause", WHY_KEY: "why", HELP_KEY: "help"}
HELP = {
    "q": "quit; the box stays",
    "r": "run all tests now",
    "f": "run the tests known to fail now",
    "c": "cancel the run; its changes wait for the next save",
    "p": "pause or resume; changes are noted meanwhile",
    WHY_KEY: "show or hide why these tests ran",
    HELP_KEY: "show or hide this help",
}


def event_of(key: str, state: State, now: float) -> Event | None:
    """What a key asks of the top lane; None for a key that asks nothing of it."""
    lane = state.top
    match key.lower():
        case "q":
            return QuitAsked(lane.lane, now)
        case "r":
            return RunAsked(lane.lane, now, All(because="asked for by key"))
        case "f":
            return RunAsked(lane.lane, now, choose(Policy.FAILED, lane.knowledge))
        case "c":
            return CancelAsked(lane.lane, now)
        case "p":
            return ResumeAsked(lane.lane, now) if lane.is_paused else PauseAsked(lane.lane, now)
        case _:
            return None


def is_in_front(descriptor: int) -> bool:
    """Whether this process may speak with the terminal now."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:  # a terminal, but not ours
        return False


class Keys:
    """Calls `on_key` with each character typed while it is entered; `unavailable` says why there are none."""

    def __init__(
        self,
        descriptor: int,
        on_key: Callable[[str], None],
        *,
        is_in_front: Callable[[int], bool] = is_in_front,
    ) -> None:
        self._descriptor = descriptor
        self._is_in_front = is_in_front
        self._on_key = on_key
        self._loop: asyncio.AbstractEventLoop | None = None
        self._modes: list[Any] | None = None
        self.unavailable = ""

    def __enter__(self) -> Self:
        self.unavailable = self._why_not()
        if self.unavailable:
            return self
        self._modes = termios.tcgetattr(self._descriptor)
        try:
            tty.setcbreak(self._descriptor, termios.TCSANOW)
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._descriptor, self._read)
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop_reading()
        self._restore()

    def _why_not(self) -> str:
        if not HAS_TERMIOS:
            return "keys are not available on this system; stop with Ctrl-C"
        if not os.isatty(self._descriptor):
            return "keys are not available: the input is no terminal"
        # Setting the modes of the terminal from the background would stop this process.
        return "" if self._is_in_front(self._descriptor) else "keys are not available in the background"

    def _read(self) -> None:
        try:
            typed = os.read(self._descriptor, 1024)
        except BlockingIOError:
            return
        except OSError:  # the terminal is gone
            typed = b""
        if not typed:
            self._stop_reading()
            return
        # Arrow and function keys come as sequences: they are not the letters they are made of.
        for key in clean(FUNCTION_KEY.sub("", typed.decode("utf-8", "replace"))):
            self._on_key(key)

    def _stop_reading(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
        self._loop = None

    def _restore(self) -> None:
        if self._modes is None:
            return
        try:
            termios.tcsetattr(self._descriptor, termios.TCSANOW, self._modes)
        except termios.error:  # the terminal is gone, and its modes with it
            pass
        self._modes = None
