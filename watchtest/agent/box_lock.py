"""Who holds the box: locks that the system frees when their holder dies, and processes known by their environment.

A holder writes its pid into its lock, and the pid namespace that the pid belongs to: in another namespace the same
number is somebody else.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from typing import Callable, List, Tuple

from .frames import MirrorError

TAKEOVER_LIMIT_S = 15.0
JOB, SERVICE = "WATCHTEST_JOB", "WATCHTEST_SERVICE"
"""The variables by which processes of a box are known; the value is its home."""


def take_over(file: str, what: str, patience_s: float = 0.0, still_alive: Callable[[], None] = lambda: None) -> int:
    """The lock, taken from a living holder if need be; for `patience_s` it may end by itself before it is killed."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    began = time.monotonic()
    while not _is_taken(fd, fcntl.LOCK_EX):
        waited_s = time.monotonic() - began
        if waited_s > TAKEOVER_LIMIT_S:
            raise MirrorError("taken", "another {} holds this box and does not end".format(what))
        pid, space = _holder(fd)
        if pid and space in ("", _pid_space()) and waited_s >= patience_s:
            kill(pid)
        still_alive()
        time.sleep(0.01)
    os.ftruncate(fd, 0)
    os.pwrite(fd, "{} {}".format(os.getpid(), _pid_space()).encode("ascii"), 0)
    return fd


def is_held(file: str) -> bool:
    """Whether a living process holds this lock right now."""
    try:
        fd = os.open(file, os.O_RDWR)
    except OSError:
        return False  # nobody ever did
    try:
        return not _is_taken(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def end_holder(file: str) -> None:
    """Kill whoever holds this lock; one of another pid namespace is not ours to name."""
    if not is_held(file):
        return
    fd = os.open(file, os.O_RDWR)
    pid, space = _holder(fd)
    os.close(fd)
    if pid and space in ("", _pid_space()):
        kill(pid)


def share(file: str) -> int:
    """Hold a part of this lock until this process ends: supervisors do, so that others can wait for their end."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_SH)
    return fd


def wait_until_free(file: str, what: str) -> None:
    """Until nobody shares this lock any more."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + TAKEOVER_LIMIT_S
    while not _is_taken(fd, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            raise MirrorError("taken", "{} does not end".format(what))
        time.sleep(0.01)
    os.close(fd)


def end_marked(variable: str, home: str) -> int:
    """Kill every process of this box that is known by this variable. How many there were."""
    found = marked(variable, home)
    for pid in found:
        kill(pid)
    return len(found)


def marked(variable: str, home: str) -> List[int]:
    """Processes that were started with `variable=home` in their environment. Only Linux tells."""
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
            continue  # ended, or not ours to read
    return [pid for pid in found if pid != os.getpid()]


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # gone already; a lock that stays taken is reported by its deadline


def _is_taken(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _holder(fd: int) -> Tuple[int, str]:
    pid, _, space = os.pread(fd, 100, 0).decode("ascii", "replace").strip().partition(" ")
    return (int(pid), space) if pid.isdigit() else (0, "")


def _pid_space() -> str:
    """The pid namespace of this process; nothing where there is none."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
