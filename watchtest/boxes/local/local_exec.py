"""Commands of the user in a local box, sandboxed or not: on our own streams, on a terminal, or left running."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from watchtest.boxes.exit_signals import exit_on_signals
from watchtest.boxes.protocols import ExecMode

DETACHED = "WATCHTEST_DETACHED"
"""The variable by which a command that was left running is found again; the value is the box's home."""
COMMAND = "WATCHTEST_COMMAND"
INTERRUPT_GRACE_S = 5.0
START_LIMIT_S = 10.0

Wrap = Callable[[list[str], bool], list[str]]
"""Puts the sandbox around a command; whether it shall die with the thread that starts it."""


@dataclass(frozen=True, slots=True)
class ExecTarget:
    """The box that a command runs in."""

    home: str
    root: str
    python: str
    wrap: Wrap | None
    """None: there is no sandbox, the command runs as it is."""


LEAVE_RUNNING = '"$@" </dev/null >/dev/null 2>&1 &'
# In a session of its own, so that Ctrl-C reaches the command alone and not the sandbox around it.
TAKE_TERMINAL = """
import fcntl, os, sys, termios
try:
    os.setsid()
except OSError:
    pass
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    sys.exit("watchtest: cannot start {}: {}".format(sys.argv[1], error.strerror))
"""


def run(argv: list[str], environ: Mapping[str, str], mode: ExecMode, inside: ExecTarget) -> int:
    """The exit code; 0 at once if it is left running."""
    wrap = inside.wrap
    if mode is ExecMode.DETACHED:
        return _leave_running(argv, environ, inside)
    if wrap is None:
        return _run_plainly(argv, environ, inside.root, is_terminal=mode is ExecMode.TERMINAL)
    if mode is ExecMode.TERMINAL:
        return _run_on_new_terminal([inside.python, "-I", "-c", TAKE_TERMINAL, *argv], environ, wrap)
    return _run_sandboxed(argv, environ, wrap)


def _run_plainly(argv: list[str], environ: Mapping[str, str], root: str, *, is_terminal: bool) -> int:
    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(argv, cwd=root, env=dict(environ))

    if not is_terminal:
        # A terminal has told the command already.
        return _run_to_its_end(start, lambda: None, lambda process: process.kill())
    # What runs on our terminal answers to its Ctrl-C; we only wait for it.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return _code(start().wait())
    finally:
        signal.signal(signal.SIGINT, before)


def _run_sandboxed(argv: list[str], environ: Mapping[str, str], wrap: Wrap) -> int:
    """In a session of its own: a command on our terminal could type into it, and Ctrl-C would end the sandbox first."""
    token = secrets.token_hex(8)
    command = wrap(["/usr/bin/env", f"{COMMAND}={token}", *argv], _lives_as_long())

    def interrupt() -> None:
        from watchtest.agent import box_lock  # not on every system

        for pid in box_lock.marked_pids(COMMAND, token):
            _signal(pid, signal.SIGINT)

    return _run_to_its_end(
        lambda: subprocess.Popen(command, env=dict(environ), start_new_session=True),
        interrupt,
        lambda process: _signal(-process.pid, signal.SIGKILL),
    )


def _run_on_new_terminal(argv: list[str], environ: Mapping[str, str], wrap: Wrap) -> int:
    from watchtest.boxes.terminal import run_on_new_terminal  # not on every system

    return _code(run_on_new_terminal(wrap(argv, _lives_as_long()), environ))


def _leave_running(argv: list[str], environ: Mapping[str, str], inside: ExecTarget) -> int:
    command = inside.wrap(argv, False) if inside.wrap is not None else argv
    return subprocess.run(
        ["/bin/sh", "-c", LEAVE_RUNNING, "sh", *command],
        cwd=inside.root,
        env={**environ, DETACHED: inside.home},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        timeout=START_LIMIT_S,
        check=False,
    ).returncode


def _run_to_its_end(
    start: Callable[[], subprocess.Popen[bytes]],
    interrupt: Callable[[], None],
    kill: Callable[[subprocess.Popen[bytes]], None],
) -> int:
    """After Ctrl-C it may still clean up behind itself."""
    with exit_on_signals(is_deferred=True) as accept_signals:
        process = start()
        try:
            accept_signals()
            return _code(process.wait())
        except (KeyboardInterrupt, SystemExit) as left:
            if isinstance(left, SystemExit):
                process.terminate()
            interrupt()
            try:
                process.wait(INTERRUPT_GRACE_S)
            except (KeyboardInterrupt, SystemExit, subprocess.TimeoutExpired):
                kill(process)
                process.wait(START_LIMIT_S)
            raise


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has just ended


def _lives_as_long() -> bool:
    """The kernel watches the thread that started a command; only the main one lives as long as the process."""
    return threading.current_thread() is threading.main_thread()


def _code(status: int) -> int:
    return status if status >= 0 else 128 - status
