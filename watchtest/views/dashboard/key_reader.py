"""Single keys from the terminal. Reads; decides nothing.

The terminal is put in cbreak mode (Ctrl-C stays a signal, Ctrl-S stops nothing) and put back on leaving, whatever the
reason.

Bytes of a terminal as keys: a printable character is itself, the others have names. Pure, but for its memory.

What is no key that anybody uses here (function keys, answers of the terminal, pastes' brackets) is left out, whole: the
letters that such a sequence is made of are not keys.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

UP, DOWN, ENTER, ESCAPE, BACKSPACE = "up", "down", "enter", "escape", "backspace"
NAMES = {
    "\x1b[A": UP,
    "\x1bOA": UP,
    "\x1b[B": DOWN,
    "\x1bOB": DOWN,
    "\r": ENTER,
    "\n": ENTER,
    "\x7f": BACKSPACE,
    "\x08": BACKSPACE,
    "\x1b": ESCAPE,
}
_KEY = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # arrows and most function keys
    r"|\x1bO."  # the same in another mode
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # answers of the terminal
    r"|\x1b"
    r"|.",
    re.DOTALL,
)


_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")
"""The beginning of a sequence; or the key Escape, which is the beginning of them all."""


class KeyDecoder:
    """Takes bytes as they come; what is cut in two is told once it is whole.

    A slow line cuts sequences, too: while `is_waiting`, `rest` takes what has come for all there is.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""

    @property
    def is_waiting(self) -> bool:
        return bool(self._begun)

    def told(self, typed: bytes) -> list[str]:
        text = self._begun + self._decoder.decode(typed)
        begun = _BEGUN.search(text)
        self._begun = begun.group() if begun else ""
        return self._keys(text.removesuffix(self._begun))

    def rest(self) -> list[str]:
        begun, self._begun = self._begun, ""
        return self._keys(begun if begun == "\x1b" else "")

    def _keys(self, text: str) -> list[str]:
        found = []
        for match in _KEY.finditer(text):
            said = match.group()
            if said in NAMES:
                found.append(NAMES[said])
            elif len(said) == 1 and said.isprintable():
                found.append(said)
        return found


try:
    import termios
    import tty
except ImportError:  # Windows
    HAS_TERMIOS = False
else:
    HAS_TERMIOS = True


REST_S = 0.05
"""So long the rest of a sequence is waited for: nobody presses Escape and another key that quickly."""


def is_in_front(descriptor: int) -> bool:
    """Whether this process may speak with the terminal now."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:  # a terminal, but not ours
        return False


def is_behind(descriptor: int) -> bool:
    """Whether another program has the terminal that is ours, too: a shell, after Ctrl-Z and `bg`."""
    try:
        return os.tcgetpgrp(descriptor) != os.getpgrp()
    except (OSError, AttributeError):  # none of ours, or a system without such things
        return False


class KeyReader:
    """Calls `on_key` with each key while it is entered; `unavailable` says why there are none.

    May be left and entered again, for a while in which the terminal is somebody else's.
    """

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
        self._keystrokes = KeyDecoder()
        self._resting: asyncio.TimerHandle | None = None
        self.unavailable = ""

    def __enter__(self) -> Self:
        self.unavailable = self._why_not()
        if self.unavailable:
            return self
        self._modes = termios.tcgetattr(self._descriptor)
        try:
            tty.setcbreak(self._descriptor, termios.TCSANOW)
            self._take_flow_control()
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._descriptor, self._read)
        except BaseException:
            self.restore()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop_reading()
        self.restore()

    def _take_flow_control(self) -> None:
        """Ctrl-S is a habit of those who save: it must not hold the screen, and with it the watcher that draws it."""
        modes = termios.tcgetattr(self._descriptor)
        modes[0] &= ~termios.IXON
        termios.tcsetattr(self._descriptor, termios.TCSANOW, modes)

    def _why_not(self) -> str:
        if not HAS_TERMIOS:
            return "keys are not available on this system; stop with Ctrl-C"
        if not os.isatty(self._descriptor):
            return "keys are not available: the input is no terminal"
        # Project the modes of the terminal from the background would stop this process.
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
        if self._resting is not None:
            self._resting.cancel()
        for key in self._keystrokes.told(typed):
            self._on_key(key)
        if self._keystrokes.is_waiting and self._loop is not None:
            self._resting = self._loop.call_later(REST_S, self._take_rest)

    def _take_rest(self) -> None:
        for key in self._keystrokes.rest():
            self._on_key(key)

    def _stop_reading(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
        self._loop = None
        if self._resting is not None:
            self._resting.cancel()

    def restore(self) -> None:
        """Give the terminal its modes back."""
        if self._modes is None:
            return
        try:
            termios.tcsetattr(self._descriptor, termios.TCSANOW, self._modes)
        except termios.error:  # the terminal is gone, and its modes with it
            pass
        self._modes = None
