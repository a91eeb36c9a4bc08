"""Locks on a box that the system frees when their holder dies, and processes recognised by their environment.

A holder writes its pid and its pid namespace into the lock file: in another namespace, the same pid is another process.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from typing import Callable, List

from .agent_error import AgentError

TAKEOVER_LIMIT_S = 15.0
_PATIENCE_S = 2.0
"""How long a supervisor may take to end its job after its agent has died."""
JOB_VARIABLE, SERVICE_VARIABLE = "WATCHTEST_JOB", "WATCHTEST_SERVICE"
"""The environment variables that mark the processes of a box; their value is the home of that box."""


def take_over(file: str, what: str, patience_s: float = 0.0, still_alive: Callable[[], None] = lambda: None) -> int:
    """Acquire the lock and return its file descriptor. A holder that does not leave within `patience_s` is killed."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)

    def on_wait(waited_s: float) -> None:
        if waited_s >= patience_s:
            _signal_holder(fd, signal.SIGKILL)
        still_alive()

    _wait_for_lock(fd, "another {} holds this box and does not exit".format(what), on_wait)
    os.ftruncate(fd, 0)
    os.pwrite(fd, "{} {}".format(os.getpid(), _pid_namespace()).encode("ascii"), 0)
    return fd


def is_held(file: str) -> bool:
    """Return whether a living process holds this lock."""
    try:
        fd = os.open(file, os.O_RDWR)
    except OSError:
        return False  # it was never taken
    try:
        return not _try_lock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def signal_holder(file: str, number: int) -> None:
    """Signal the holder of this lock, unless it lives in another pid namespace, where its pid means nothing to us."""
    if not is_held(file):
        return
    fd = os.open(file, os.O_RDWR)
    _signal_holder(fd, number)
    os.close(fd)


def hold_shared(file: str) -> int:
    """Share this lock until this process exits: supervisors do, so that others can wait until they are gone."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_SH)
    return fd


def wait_until_free(file: str, what: str) -> None:
    """Wait until no process shares this lock. Holders that are stopped continue; late ones are killed."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)

    def on_wait(waited_s: float) -> None:
        for pid in _pids_with_open(os.path.realpath(file)):
            send_signal(pid, signal.SIGKILL if waited_s > _PATIENCE_S else signal.SIGCONT)

    _wait_for_lock(fd, "{} does not exit".format(what), on_wait)
    os.close(fd)


def _pids_with_open(file: str) -> List[int]:
    """Return the other processes that have this file open; none without /proc."""
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    except OSError:
        return []
    return [int(name) for name in names if file in _open_files("/proc/{}/fd".format(name))]


def _open_files(folder: str) -> List[str]:
    found = []
    try:
        for name in os.listdir(folder):
            found.append(os.readlink(os.path.join(folder, name)))
    except OSError:
        pass  # it has exited, or belongs to another user
    return found


def kill_marked(variable: str, home: str) -> int:
    """Kill every process of this box that carries this variable; return how many there were."""
    found = marked_pids(variable, home)
    for pid in found:
        send_signal(pid)
    return len(found)


def marked_pids(variable: str, home: str) -> List[int]:
    """Return the processes that were started with `variable=home` in their environment; none without /proc."""
    marker = "{}={}".format(variable, home).encode("utf-8", "surrogateescape")
    found = []
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for name in names:
        try:
            with open("/proc/{}/environ".format(name), "rb") as stream:
                if marker in stream.read().split(b"\0"):
                    found.append(int(name))
        except OSError:
            continue  # it has exited, or belongs to another user
    return [pid for pid in found if pid != os.getpid()]


def send_signal(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # it is gone already, or belongs to another user: the caller notices what stays


def _try_lock(fd: int, operation: int) -> bool:
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _wait_for_lock(fd: int, complaint: str, on_wait: Callable[[float], None]) -> None:
    began = time.monotonic()
    while not _try_lock(fd, fcntl.LOCK_EX):
        waited_s = time.monotonic() - began
        if waited_s > TAKEOVER_LIMIT_S:
            raise AgentError("taken", complaint)
        on_wait(waited_s)
        time.sleep(0.02)


def _signal_holder(fd: int, number: int) -> None:
    pid, _, namespace = os.pread(fd, 100, 0).decode("ascii", "replace").strip().partition(" ")
    if pid.isdigit() and namespace in ("", _pid_namespace()):
        send_signal(int(pid), number)


def _pid_namespace() -> str:
    """Return the pid namespace of this process, or "" where the system has none."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
