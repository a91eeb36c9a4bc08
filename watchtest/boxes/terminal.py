"""A command of this machine on a terminal of its own that is shown on ours: it gets our keys, and cannot type.

Being ended from outside while a command of the user runs in the box: in good order, so that it does not run on.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

POLL_S = 0.2
END_LIMIT_S = 10.0


def run_on_new_terminal(command: list[str], environ: Mapping[str, str]) -> int:
    """Until the command ends; its exit status. Our own terminal is as before, however it ended."""
    ours, theirs = pty.openpty()
    try:
        with forward_size(lambda: _pass_size(ours)), raw_mode(sys.stdin.fileno()):
            try:
                process = subprocess.Popen(
                    command,
                    stdin=theirs,
                    stdout=theirs,
                    stderr=theirs,
                    env=dict(environ),
                    start_new_session=True,
                )
            finally:
                os.close(theirs)
            _pass_both_ways(ours, process)
    finally:
        os.close(ours)  # hangs up: what is still on that terminal is told
    return process.wait(END_LIMIT_S)


def _pass_both_ways(terminal: int, process: subprocess.Popen[bytes]) -> None:
    keyboard = sys.stdin.fileno()
    sources = [terminal, keyboard]
    while True:
        ready, _, _ = select.select(sources, [], [], POLL_S)
        if terminal in ready:
            try:
                piece = os.read(terminal, 64 * 1024)
            except OSError:
                return  # nobody has it open any more
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        elif process.poll() is not None:
            return
        if keyboard in ready:
            typed = os.read(keyboard, 64 * 1024)
            if not typed:
                sources = [terminal]
            os.write(terminal, typed or b"\x04")  # no more input: what Ctrl-D says


@contextmanager
def raw_mode(keyboard: int) -> Iterator[None]:
    """Every key goes through, Ctrl-C included; restored whatever happens."""
    if not os.isatty(keyboard):
        yield
        return
    before = termios.tcgetattr(keyboard)
    tty.setraw(keyboard, termios.TCSADRAIN)  # what was typed ahead is not thrown away
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _pass_size(terminal: int) -> None:
    try:
        size = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
    except OSError:
        return  # our stdout is no terminal: theirs has the usual size


@contextmanager
def forward_size(pass_on: Callable[[], None]) -> Iterator[None]:
    """Pass the size of our terminal on, now and whenever it changes."""

    def follow(_number: int, _frame: FrameType | None) -> None:
        pass_on()

    before = signal.signal(signal.SIGWINCH, follow)
    pass_on()
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


ENDS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def exit_on_signals(is_held: bool = False) -> Iterator[Callable[[], None]]:
    """A terminal that closes, or a `kill`, becomes a SystemExit here: whoever has something to end, ends it.

    With `is_held` only from when the function that it gives is called: what is being started can be ended by then.
    """
    came: list[int] = []
    is_open = not is_held

    def leave(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        if is_open:
            sys.exit(128 + number)

    def let_go() -> None:
        nonlocal is_open
        is_open = True
        if came:
            sys.exit(128 + came[0])

    before = {number: signal.signal(number, leave) for number in ENDS}
    try:
        yield let_go
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
