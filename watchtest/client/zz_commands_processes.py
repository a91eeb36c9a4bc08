"""One process of this machine, known by more than its number, which the system gives to another one day."""

from __future__ import annotations

import errno
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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
