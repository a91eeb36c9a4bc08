"""Reads single keys from the terminal. A printable character stands for itself, the other keys have names.

While entered, the terminal is in cbreak mode: Ctrl-C stays a signal, and Ctrl-S does not stop the output. The old mode
is restored on leaving, even after a crash. Sequences without a meaning here (function keys, answers of the terminal,
brackets around pasted text) are dropped as a whole, so that their letters are not taken for keys.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
from collections.abc import Callable
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
_INCOMPLETE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")
"""The start of a sequence, or the Escape key, which looks the same."""


class KeyDecoder:
    """Turns bytes into keys. A character or sequence that arrives in pieces is returned once it is complete.

    While `is_incomplete`, `flush` gives up waiting for the rest of a sequence.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._incomplete = ""

    @property
    def is_incomplete(self) -> bool:
        return bool(self._incomplete)

    def feed(self, typed: bytes) -> list[str]:
        text = self._incomplete + self._decoder.decode(typed)
        match = _INCOMPLETE.search(text)
        self._incomplete = match.group() if match else ""
        return self._keys(text.removesuffix(self._incomplete))

    def flush(self) -> list[str]:
        incomplete, self._incomplete = self._incomplete, ""
        return self._keys(incomplete if incomplete == "\x1b" else "")

    def _keys(self, text: str) -> list[str]:
        found = []
        for match in _KEY.finditer(text):
            sequence = match.group()
            if sequence in NAMES:
                found.append(NAMES[sequence])
            elif len(sequence) == 1 and sequence.isprintable():
                found.append(sequence)
        return found


try:
    import termios
    import tty
except ImportError:  # Windows
    HAS_TERMIOS = False
else:
    HAS_TERMIOS = True


SEQUENCE_LIMIT_S = 0.05
"""How long to wait for the rest of a sequence; the Escape key and the next key are never pressed that quickly."""


def is_in_foreground(descriptor: int) -> bool:
    """Return whether this process may use the terminal now."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:  # not our controlling terminal
        return False


def is_in_background(descriptor: int) -> bool:
    """Return whether another program has our controlling terminal: the shell, after Ctrl-Z and `bg`."""
    try:
        return os.tcgetpgrp(descriptor) != os.getpgrp()
    except (OSError, AttributeError):  # not our controlling terminal, or a system without job control
        return False


class KeyReader:
    """Calls `on_key` for each key while entered; `unavailable` says why there are none.

    It can be left and entered again, to lend the terminal to another program.
    """

    def __init__(
        self,
        descriptor: int,
        on_key: Callable[[str], None],
        *,
        is_in_foreground: Callable[[int], bool] = is_in_foreground,
    ) -> None:
        self._descriptor = descriptor
        self._is_in_foreground = is_in_foreground
        self._on_key = on_key
        self._loop: asyncio.AbstractEventLoop | None = None
        self._modes: list[Any] | None = None
        self._decoder = KeyDecoder()
        self._flush_timer: asyncio.TimerHandle | None = None
        self.unavailable = ""

    def __enter__(self) -> Self:
        self.unavailable = self._unavailable_reason()
        if self.unavailable:
            return self
        self._modes = termios.tcgetattr(self._descriptor)
        try:
            tty.setcbreak(self._descriptor, termios.TCSANOW)
            self._disable_flow_control()
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._descriptor, self._read)
        except BaseException:
            self.restore()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_reading()
        self.restore()

    def _disable_flow_control(self) -> None:
        """Keep Ctrl-S, which many users press to save, from blocking the screen and the watcher that draws it."""
        modes = termios.tcgetattr(self._descriptor)
        modes[0] &= ~termios.IXON
        termios.tcsetattr(self._descriptor, termios.TCSANOW, modes)

    def _unavailable_reason(self) -> str:
        if not HAS_TERMIOS:
            return "keys are not available on this system; stop with Ctrl-C"
        if not os.isatty(self._descriptor):
            return "keys are not available: standard input is not a terminal"
        # Changing the mode of the terminal from the background would stop this process.
        return "" if self._is_in_foreground(self._descriptor) else "keys are not available in the background"

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
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        for key in self._decoder.feed(typed):
            self._on_key(key)
        if self._decoder.is_incomplete and self._loop is not None:
            self._flush_timer = self._loop.call_later(SEQUENCE_LIMIT_S, self._flush)

    def _flush(self) -> None:
        for key in self._decoder.flush():
            self._on_key(key)

    def _stop_reading(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
        self._loop = None
        if self._flush_timer is not None:
            self._flush_timer.cancel()

    def restore(self) -> None:
        """Restore the mode of the terminal."""
        if self._modes is None:
            return
        try:
            termios.tcsetattr(self._descriptor, termios.TCSANOW, self._modes)
        except termios.error:  # the terminal is gone
            pass
        self._modes = None
