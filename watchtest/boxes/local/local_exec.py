"""Run commands of the user in a local box, sandboxed or not: attached, on a terminal or detached."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from watchtest.boxes.exit_signals import exit_on_signals
from watchtest.boxes.local.box_folder import DETACHED
from watchtest.boxes.local.bubblewrap import SETUP_FAILED, START_TRIES
from watchtest.boxes.protocols import ExecMode

COMMAND = "WATCHTEST_COMMAND"
INTERRUPT_GRACE_S = 5.0
START_LIMIT_S = 10.0


class Sandbox(Protocol):
    def __call__(self, command: list[str], *, dies_with_parent: bool = False, status_fd: int = -1) -> list[str]:
        """Return the command with the sandbox around it."""


@dataclass(frozen=True, slots=True)
class ExecTarget:
    """The box that a command runs in."""

    home: str
    root: str
    python: str
    sandbox: Sandbox | None


DETACH = '"$@" </dev/null >/dev/null 2>&1 &'
# In a session of its own, so that Ctrl-C reaches only the command and not the sandbox around it.
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


def run(argv: list[str], environ: Mapping[str, str], mode: ExecMode, target: ExecTarget) -> int:
    """Run a command and return its exit code; a detached command returns 0 at once."""
    sandbox = target.sandbox
    if mode is ExecMode.DETACHED:
        return _run_detached(argv, environ, target)
    if sandbox is None:
        return _run_unsandboxed(argv, environ, target.root, is_terminal=mode is ExecMode.TERMINAL)
    if mode is ExecMode.ATTACHED:
        return _run_attached(argv, environ, sandbox)
    from watchtest.boxes.terminal import run_on_new_terminal  # not on every system

    with_terminal = [target.python, "-I", "-c", TAKE_TERMINAL, *argv]
    return _run_in_sandbox(
        with_terminal, sandbox, lambda command, status_fd: run_on_new_terminal(command, environ, status_fd)
    )


def _run_unsandboxed(argv: list[str], environ: Mapping[str, str], root: str, *, is_terminal: bool) -> int:
    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(argv, cwd=root, env=dict(environ))

    if not is_terminal:
        # Ctrl-C has reached the command already, through the terminal.
        return _run_to_end(start, lambda: None, lambda process: process.kill())
    # The command handles Ctrl-C on our terminal; we only wait.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return _exit_code(start().wait())
    finally:
        signal.signal(signal.SIGINT, before)


def _run_attached(argv: list[str], environ: Mapping[str, str], sandbox: Sandbox) -> int:
    """Run in a session of its own: the command must not inject input, and Ctrl-C must not end the sandbox first."""
    token = secrets.token_hex(8)

    def interrupt() -> None:
        from watchtest.agent import box_lock  # not on every system

        for pid in box_lock.marked_pids(COMMAND, token):
            _signal(pid, signal.SIGINT)

    def run_once(command: list[str], status_fd: int) -> int:
        return _run_to_end(
            lambda: subprocess.Popen(command, env=dict(environ), start_new_session=True, pass_fds=(status_fd,)),
            interrupt,
            lambda process: _signal(-process.pid, signal.SIGKILL),
        )

    return _run_in_sandbox(["/usr/bin/env", f"{COMMAND}={token}", *argv], sandbox, run_once)


def _run_in_sandbox(argv: list[str], sandbox: Sandbox, run_once: Callable[[list[str], int], int]) -> int:
    """Run a command; again while bubblewrap fails before the command has started, see `mount_vanished`."""
    # Only the main thread lives as long as our process.
    is_main_thread = threading.current_thread() is threading.main_thread()
    for _ in range(START_TRIES):
        with tempfile.TemporaryFile() as status:
            command = sandbox(argv, dies_with_parent=is_main_thread, status_fd=status.fileno())
            code = _exit_code(run_once(command, status.fileno()))
            status.seek(0)
            # bubblewrap reports an exit code only if the sandbox was complete.
            if code != SETUP_FAILED or b"exit-code" in status.read():
                break
    return code


def _run_detached(argv: list[str], environ: Mapping[str, str], target: ExecTarget) -> int:
    command = target.sandbox(argv) if target.sandbox is not None else argv
    return subprocess.run(
        ["/bin/sh", "-c", DETACH, "sh", *command],
        cwd=target.root,
        env={**environ, DETACHED: target.home},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        timeout=START_LIMIT_S,
        check=False,
    ).returncode


def _run_to_end(
    start: Callable[[], subprocess.Popen[bytes]],
    interrupt: Callable[[], None],
    kill: Callable[[subprocess.Popen[bytes]], None],
) -> int:
    """Run a process to its end. After Ctrl-C or a signal it has some time to clean up."""
    with exit_on_signals(is_deferred=True) as accept_signals:
        process = start()
        try:
            accept_signals()
            return _exit_code(process.wait())
        except (KeyboardInterrupt, SystemExit) as reason:
            if isinstance(reason, SystemExit):
                process.terminate()
            interrupt()
            try:
                process.wait(INTERRUPT_GRACE_S)
            except (KeyboardInterrupt, SystemExit, subprocess.TimeoutExpired):
                kill(process)
                process.wait(START_LIMIT_S)
            raise


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, number)


def _exit_code(status: int) -> int:
    return status if status >= 0 else 128 - status
