"""Run a local command on a terminal of its own that is shown on ours. Needs Unix.

The command receives our keys, but cannot inject input into our terminal.
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
from contextlib import contextmanager, suppress
from typing import Any

POLL_S = 0.2
END_LIMIT_S = 10.0
READ_SIZE = 64 * 1024


def run_on_new_terminal(command: list[str], environ: Mapping[str, str], inherited_fd: int) -> int:
    """Run the command to its end, restore our terminal and return the exit status."""
    ours, theirs = pty.openpty()
    try:
        with forward_size(lambda: _copy_size(ours)), raw_mode(sys.stdin.fileno()):
            try:
                process = subprocess.Popen(
                    command,
                    stdin=theirs,
                    stdout=theirs,
                    stderr=theirs,
                    env=dict(environ),
                    start_new_session=True,
                    pass_fds=(inherited_fd,),
                )
            finally:
                os.close(theirs)
            forward_both_ways(
                ours, lambda: _read(ours), lambda keys: os.write(ours, keys), lambda: process.poll() is not None
            )
    finally:
        os.close(ours)  # hangs up: processes that are still on that terminal get a SIGHUP
    return process.wait(END_LIMIT_S)


def forward_both_ways(
    source: Any, read: Callable[[], bytes], write: Callable[[bytes], object], has_ended: Callable[[], bool]
) -> None:
    """Show what `read` returns from the source on our terminal, and pass our keys to `write`, until the end."""
    keyboard = sys.stdin.fileno()
    sources = [source, keyboard]
    while True:
        ready, _, _ = select.select(sources, [], [], POLL_S)
        if source in ready:
            piece = read()
            if not piece:
                return
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        elif has_ended():
            return
        if keyboard in ready:
            typed = os.read(keyboard, READ_SIZE)
            if not typed:
                sources = [source]
            write(typed or b"\x04")  # at the end of our input, send Ctrl-D


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, READ_SIZE)
    except OSError:
        return b""  # no process has it open


@contextmanager
def raw_mode(keyboard: int) -> Iterator[None]:
    """Pass every key through, including Ctrl-C, while entered."""
    if not os.isatty(keyboard):
        yield
        return
    before = termios.tcgetattr(keyboard)
    tty.setraw(keyboard, termios.TCSADRAIN)  # keeps what was typed ahead
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _copy_size(terminal: int) -> None:
    with suppress(OSError):  # our stdout is not a terminal: theirs keeps the default size
        size = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


@contextmanager
def forward_size(forward: Callable[[], None]) -> Iterator[None]:
    """Call `forward` now and whenever the size of our terminal changes."""
    before = signal.signal(signal.SIGWINCH, lambda _number, _frame: forward())
    forward()
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
