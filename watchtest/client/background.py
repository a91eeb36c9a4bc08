"""The watcher of a workspace as a process: whether there is one, which it is, and how it is begun and ended.

There is no pid file that could be stale. The lock, which the system frees when its holder dies, tells whether there is
a watcher; the control socket, or the status file checked against the system's own word on that process, tells which.

One process of this machine, known by more than its number, which the system gives to another one day.
"""

from __future__ import annotations

import errno
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from watchtest.client.status_file import is_locked, load
from watchtest.control.address import socket_places
from watchtest.control.client import Client
from watchtest.errors import ControlError, UsageError, WatchtestError, WorkspaceError
from watchtest.logs.reader import format_record, last_lines
from watchtest.logs.writer import NAME
from watchtest.workspace.folder import FOLDER, make_folder
from watchtest.workspace.lock import TAKEN
from watchtest.workspace.user_dirs import runtime_dirs


def proven(writer: Mapping[str, Any]) -> int | None:
    """The pid of the writer if the process of that number is the very one: same machine, boot and start."""
    pid, start = writer.get("pid"), writer.get("pid_start")
    if not isinstance(pid, int) or not isinstance(start, int) or pid <= 1:
        return None
    is_here = writer.get("host") == platform.node() and writer.get("boot_id") == _boot_id()
    stat = _stat(pid)
    return pid if is_here and stat is not None and int(stat[19]) == start and stat[0] not in ("Z", "X") else None


def can_prove() -> bool:
    return _stat(os.getpid()) is not None


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on; None: no such process, or no such system."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields if len(fields) > 19 else None


def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def has_no_terminal(pid: int) -> bool | None:
    stat = _stat(pid)
    return None if stat is None else stat[4] == "0"


def is_alive(pid: int) -> bool:
    stat = _stat(pid)
    if stat is not None:
        return stat[0] not in ("Z", "X")
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not can_prove()


@contextmanager
def held(pid: int) -> Iterator[Callable[[int], None]]:
    """Sends signals to the process that has this number now, and to no other that may get it later (on Linux)."""
    handle = _handle(pid)
    if handle is None:
        yield lambda number: os.kill(pid, number)
        return
    try:
        yield lambda number: signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def _handle(pid: int) -> int | None:
    """None: this system has none. ProcessLookupError: there is no such process."""
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):  # an old kernel, or a sandbox that knows no such call
            return None
        raise


POLL_S = 0.05
START_LIMIT_S = 60.0
"""An engine that has to be asked first may take its time; the box itself is made after that."""
STOP_LIMIT_S = 20.0
"""A watcher gives its runs 8 s to end, then closes its boxes."""
KILL_LIMIT_S = 5.0
ASK_LIMIT_S = 2.0
LAST_WORDS = 5
USAGE = 2
ERRORS = "background.err"
"""What a background watcher writes to its stderr: nothing, unless it cannot begin or the interpreter itself dies."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that watches. Since: of its start. In the background: it has no terminal; None: nobody knows."""

    pid: int
    since: float | None
    is_background: bool | None

    def __str__(self) -> str:
        where = {True: ", in the background", False: ", on a terminal", None: ""}[self.is_background]
        since = "" if self.since is None else f", since {datetime.fromtimestamp(self.since):%Y-%m-%d %H:%M:%S}"
        return f"process {self.pid}{since}{where}"


class Workspace:
    """One workspace and its watcher, if there is one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own = folder / FOLDER

    def is_watched(self) -> bool:
        return is_locked(self.own / "lock") is True

    def holder(self) -> Holder | None:
        """Who watches, as far as that can be proven; None: nobody, or nobody knows yet."""
        if not self.is_watched():
            return None
        writer = self._writer()
        pid = proven(writer) or self._answering()
        if pid is None or not self.is_watched():
            return None
        since = _time(writer.get("started_at")) if writer.get("pid") == pid else None
        return Holder(pid, since, has_no_terminal(pid))

    def _is_written_by(self, child: int, begun_at: float) -> bool:
        """Whether that child of ours watches, and has said so: from then on, every save is seen."""
        writer = self._writer()
        if not self.is_watched() or writer.get("pid") != child:
            return False
        # Without a word of the system on that process: its number is its own while it is our child.
        return proven(writer) == child if can_prove() else (_time(writer.get("started_at")) or 0.0) >= begun_at - 1.0

    def start(self, options: Sequence[str], limit_s: float = START_LIMIT_S) -> Holder | None:
        """A watcher of our own in the background, once it really lives; None: somebody else's was quicker."""
        make_own(self.own)
        errors = self.own / ERRORS
        with errors.open("wb") as stream:
            process = subprocess.Popen(
                # Isolated from the folder it is started in: a project may hold a `json.py`, or a `watchtest`.
                [sys.executable, "-P", "-m", "watchtest", *options],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                **_detached(),
            )
        begun_at, deadline = time.time(), time.monotonic() + limit_s
        while process.poll() is None:
            if self._is_written_by(process.pid, begun_at):
                process.returncode = 0  # it outlives us, and that is no oversight
                return Holder(process.pid, begun_at, True)
            if time.monotonic() > deadline:
                process.kill()
                process.wait(KILL_LIMIT_S)
                text = f"the watcher was begun, and has not got to its work within {limit_s:g} s; it was ended"
                raise ControlError(text, hint=self._last_words() or "the machine may be too busy: try again")
            time.sleep(POLL_S)
        said = _content(errors)
        if self.is_watched() or TAKEN in said:
            return None
        raise _reason(process.returncode, said, self._last_words())

    def stop(self, say: Say, limit_s: float = STOP_LIMIT_S, kill_limit_s: float = KILL_LIMIT_S) -> Holder | None:
        """End the watcher, gently first; who it was. None: there was none. Returns when the lock is free."""
        holder = self.known_holder()
        if holder is None:
            return None
        for number, patience_s, words in (
            (signal.SIGTERM, limit_s, "does not end by itself: it is killed; the next start finds its box"),
            (getattr(signal, "SIGKILL", signal.SIGTERM), kill_limit_s, "cannot even be killed"),
        ):
            if not self._sent(number, holder):
                return holder
            if self._is_freed_by(holder, patience_s):
                return holder
            say(f"{holder} {words} (waited {patience_s:g} s)")
        raise ControlError(f"the watcher is still there: {holder}", hint="look at that process yourself")

    def known_holder(self) -> Holder | None:
        """Who watches, waited for: a watcher that has just been started can be told a moment later. None: nobody."""
        deadline = time.monotonic() + START_LIMIT_S
        while self.is_watched() or self._is_about_to_lock():
            holder = self.holder()
            if holder is not None:
                return holder
            if time.monotonic() > deadline:
                host = self._writer().get("host")
                raise ControlError(
                    f"{self.folder} is watched, and nobody can tell by which process"
                    + (f" (the last that wrote its status ran on {host})" if host else ""),
                    hint="end it where it was started",
                )
            time.sleep(POLL_S)
        return None

    def _sent(self, number: int, holder: Holder) -> bool:
        """Whether the signal went to that very process; not if it has ended meanwhile."""
        try:
            with held(holder.pid) as send:
                # Looked at once more, with the process in our hands: its number cannot become another's any more.
                now = self.holder() if can_prove() else holder
                if now is None or now.pid != holder.pid:
                    return False
                send(number)
        except ProcessLookupError:
            return False
        except PermissionError as error:
            raise ControlError(f"the watcher belongs to another user: {holder}", hint="ask them to stop it") from error
        return True

    def _is_freed_by(self, holder: Holder, limit_s: float) -> bool:
        """Whether that process is gone in time, and the lock with it; a lock that is free will do then."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if not is_alive(holder.pid):
                return True
            time.sleep(POLL_S)
        return not self.is_watched()

    def _writer(self) -> dict[str, Any]:
        try:
            writer = load(self.own / "status.json")["writer"]
        except WorkspaceError:
            return {}
        return writer if isinstance(writer, dict) else {}

    def _answering(self) -> int | None:
        """The pid of whoever answers on the control socket of this workspace, which lies where only we can listen."""
        client = Client(socket_places(self.folder, runtime_dirs()), timeout_s=ASK_LIMIT_S)
        try:
            pid = client.get("/health").get("pid")
        except (ControlError, UsageError):
            return None
        return pid if isinstance(pid, int) and pid > 1 else None

    def _is_about_to_lock(self) -> bool:
        """The lock file was swept away (`git clean -xdf`) and its watcher, which still answers, takes it anew."""
        return is_locked(self.own / "lock") is None and self._answering() is not None

    def _last_words(self) -> str:
        """The end of the log, for whoever wonders why it died."""
        try:
            lines, _ = last_lines(self.own / NAME, LAST_WORDS)
        except WorkspaceError:
            return ""
        return "\n  ".join(
            ["the last lines of its log:", *(format_record(line).replace("\n", "\n  ") for line in lines)]
        )


def make_own(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as error:
        raise WorkspaceError(
            f"{folder} cannot be written: {error.strerror}", hint="watchtest keeps its status there; make it writable"
        ) from error


def _time(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return None


def _detached() -> dict[str, Any]:
    """A session of its own: no terminal, and no signal of the one it was started from, ever reaches it."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # swept away already
        return ""


def _reason(code: int, said: str, last_words: str) -> WatchtestError:
    """Why it died: in its own words and with its own exit code, if it had any."""
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    message, _, hint = said.removeprefix("watchtest: ").partition("\n")
    error = ControlError(f"the watcher ended {how} before it got to its work: {message or 'it said nothing'}")
    error.hint = "\n  ".join(part for part in (hint.strip(), last_words if code != USAGE else "") if part)
    error.exit_code = code if code > 0 else ControlError.exit_code
    return error
