"""The watcher of a workspace as a process: whether there is one, which one it is, how to start and how to stop it.

There is no pid file that could become stale. The lock, which the operating system frees when its owner dies, shows
whether there is a watcher. The status file or the control socket shows which process it is; a pid from the status file
is checked against the machine, the boot and the start time of the process, because systems reuse pids.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from textwrap import indent
from typing import Any

from watchtest.client.status_file import is_locked, is_watched, last_status, proc_stat, verified_pid
from watchtest.client.watcher import ControlClient
from watchtest.control.address import socket_paths
from watchtest.errors import ControlError, UsageError, WatchtestError, WorkspaceError
from watchtest.watcher_log import NAME, format_record, last_lines
from watchtest.workspace.folder import FOLDER, OwnFolder
from watchtest.workspace.lock import TAKEN, unwritable
from watchtest.workspace.user_dirs import runtime_dirs


def can_verify() -> bool:
    return proc_stat(os.getpid()) is not None


def is_alive(pid: int) -> bool:
    stat = proc_stat(pid)
    if stat is not None:
        return stat[0] not in ("Z", "X")
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not can_verify()


@contextmanager
def signal_sender(pid: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that signals this process and (on Linux) never another one that gets its pid later."""
    handle = None
    if sys.platform == "linux":
        try:
            handle = os.pidfd_open(pid)
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EPERM):  # an old kernel, or a sandbox that forbids the call
                raise
    if handle is None:
        yield lambda number: os.kill(pid, number)
        return
    try:
        yield lambda number: signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


POLL_S = 0.05
START_LIMIT_S = 60.0
"""Finding an engine may take a while. The box itself is created later."""
STOP_LIMIT_S = 20.0
"""A watcher gives its runs 8 s to end and then closes its boxes."""
KILL_LIMIT_S = 5.0
ASK_LIMIT_S = 2.0
LOG_LINES = 5
USAGE = 2
STDERR_NAME = "background.err"
"""Stays empty unless the watcher cannot start or the interpreter itself crashes."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class WatcherProcess:
    """The process that watches. `since` is its start; `is_background` means it has no terminal; None is unknown."""

    pid: int
    since: float | None
    is_background: bool | None

    def __str__(self) -> str:
        where = {True: ", in the background", False: ", on a terminal", None: ""}[self.is_background]
        since = "" if self.since is None else f", since {datetime.fromtimestamp(self.since):%Y-%m-%d %H:%M:%S}"
        return f"process {self.pid}{since}{where}"


class BackgroundWatcher:
    """The watcher of one workspace, which may or may not be running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state_folder = folder / FOLDER

    def is_watched(self) -> bool:
        return is_watched(self.folder)

    def process(self) -> WatcherProcess | None:
        """Return the process that watches; None if there is none, or if it cannot be identified yet."""
        if not self.is_watched():
            return None
        writer = self._writer()
        pid = verified_pid(writer) or self._answering_pid()
        if pid is None or not self.is_watched():
            return None
        since = _time(writer.get("started_at")) if writer.get("pid") == pid else None
        stat = proc_stat(pid)
        return WatcherProcess(pid, since, None if stat is None else stat[4] == "0")

    def _is_watched_by(self, child: int, started_at: float) -> bool:
        """Return whether our child holds the lock and has written the status: from then on, it notices every save."""
        writer = self._writer()
        if not self.is_watched() or writer.get("pid") != child:
            return False
        if can_verify():
            return verified_pid(writer) == child
        return (_time(writer.get("started_at")) or 0.0) >= started_at - 1.0

    def start(self, options: Sequence[str], limit_s: float = START_LIMIT_S) -> WatcherProcess | None:
        """Start a watcher in the background. Returns when it is watching; None if another one was faster."""
        own = OwnFolder(self.state_folder)
        try:
            own.make()
            errors = own.create(STDERR_NAME)
        except OSError as error:
            raise unwritable(own.path, error) from error
        with os.fdopen(errors, "wb") as stream:
            process = subprocess.Popen(
                # -P: a project may contain a `json.py`, or a `watchtest`, which must not be imported.
                [sys.executable, "-P", "-m", "watchtest", *options],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                # Signals of our terminal do not reach it.
                start_new_session=True,
                creationflags=getattr(subprocess, "DETACHED_PROCESS", 0)
                | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        started_at, deadline = time.time(), time.monotonic() + limit_s
        while process.poll() is None:
            if self._is_watched_by(process.pid, started_at):
                process.returncode = 0  # it outlives us on purpose, so Popen must not warn
                return WatcherProcess(process.pid, started_at, True)
            if time.monotonic() > deadline:
                process.kill()
                process.wait(KILL_LIMIT_S)
                text = f"the watcher was not ready within {limit_s:g} s and has been killed"
                raise ControlError(text, hint=self._log_tail() or "the machine may be too busy: try again")
            time.sleep(POLL_S)
        try:
            message = own.read(STDERR_NAME).decode("utf-8", "replace").strip()
        except OSError:  # removed meanwhile
            message = ""
        if self.is_watched() or TAKEN in message:
            return None
        raise _start_error(process.returncode, message, self._log_tail())

    def stop(self, say: Say, limit_s: float = STOP_LIMIT_S) -> WatcherProcess | None:
        """End the watcher, politely first, and return it when its lock is free; None if there was none."""
        process = self.wait_for_process()
        if process is None:
            return None
        for number, patience_s, words in (
            (signal.SIGTERM, limit_s, "does not end by itself and is killed; the next start finds its box"),
            (getattr(signal, "SIGKILL", signal.SIGTERM), KILL_LIMIT_S, "cannot be killed"),
        ):
            if not self._signal(number, process) or self._has_ended(process, patience_s):
                return process
            say(f"{process} {words} (waited {patience_s:g} s)")
        raise ControlError(f"the watcher is still running: {process}", hint="check that process yourself")

    def wait_for_process(self) -> WatcherProcess | None:
        """Return the process that watches, once it can be identified; None if nothing watches."""
        deadline = time.monotonic() + START_LIMIT_S
        while self.is_watched() or self._is_about_to_lock():
            process = self.process()
            if process is not None:
                return process
            if time.monotonic() > deadline:
                host = self._writer().get("host")
                where = f" (the last one to write its status ran on {host})" if host else ""
                text = f"{self.folder} is watched, but the process cannot be identified{where}"
                raise ControlError(text, hint="end it where it was started")
            time.sleep(POLL_S)
        return None

    def _signal(self, number: int, process: WatcherProcess) -> bool:
        """Send the signal to exactly that process; False if it has ended meanwhile."""
        try:
            with signal_sender(process.pid) as send:
                # Check again: from here on, the pid cannot be reused.
                now = self.process() if can_verify() else process
                if now is None or now.pid != process.pid:
                    return False
                send(number)
        except ProcessLookupError:
            return False
        except PermissionError as error:
            raise ControlError(f"the watcher belongs to another user: {process}", hint="ask them to stop it") from error
        return True

    def _has_ended(self, process: WatcherProcess, limit_s: float) -> bool:
        """Wait for the process to end. After the limit, a free lock counts as well."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if not is_alive(process.pid):
                return True
            time.sleep(POLL_S)
        return not self.is_watched()

    def _writer(self) -> dict[str, Any]:
        writer = last_status(self.folder).get("writer")
        return writer if isinstance(writer, dict) else {}

    def _answering_pid(self) -> int | None:
        """Return the pid that answers on the control socket, which is in a folder of this user only."""
        client = ControlClient(socket_paths(self.folder, runtime_dirs()), timeout_s=ASK_LIMIT_S)
        try:
            pid = client.get("/health").get("pid")
        except (ControlError, UsageError):
            return None
        return pid if isinstance(pid, int) and pid > 1 else None

    def _is_about_to_lock(self) -> bool:
        """Return whether the lock file was removed (`git clean -xdf`) from a live watcher, which will lock it again."""
        return is_locked(self.state_folder / "lock") is None and self._answering_pid() is not None

    def _log_tail(self) -> str:
        """Return the end of the log, which may explain why the watcher died."""
        try:
            lines, _ = last_lines(self.state_folder / NAME, LOG_LINES)
        except WorkspaceError:
            return ""
        return indent("\n".join(["the last lines of its log:", *map(format_record, lines)]), "  ").lstrip()


def _time(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return None


def _start_error(code: int, stderr: str, log_tail: str) -> WatchtestError:
    """Return an error with the watcher's own message and exit code, if it had any."""
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    message, _, hint = stderr.removeprefix("watchtest: ").partition("\n")
    error = ControlError(f"the watcher ended {how} before it was ready: {message or 'it printed nothing'}")
    error.hint = "\n  ".join(part for part in (hint.strip(), log_tail if code != USAGE else "") if part)
    error.exit_code = code if code > 0 else ControlError.exit_code
    return error
