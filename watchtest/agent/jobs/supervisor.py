"""The small process around a job. It outlives the job's own process, adopts its orphans, and kills all of them.

On Linux it is a subreaper: a process that left by setsid or a double fork becomes its child and is found in /proc.
Elsewhere only the process group can be killed. Commands arrive as single bytes; the end of that stream means that the
agent has died, and everything is killed. It has a deadline of its own, so that a stuck agent cannot keep a job alive.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import sys
import time
from typing import Dict, List, NoReturn, Optional, Set

from ..box_lock import send_signal
from ..rows import STACKS_SIGNAL

STACKS, INTERRUPT, TERMINATE, KILL, GO = b"s", b"i", b"t", b"k", b"g"
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_KILL_LIMIT_S = 10.0
_KILL_TREE_LIMIT_S = 2.0
"""The agent answers nothing meanwhile."""
_CHECK_EVERY_S, _CHECK_WAITING_EVERY_S = 1.0, 5.0
_PRESTART_CPU_LIMIT_S = 60.0
"""The CPU time that a prestarted run may use: with more than that it will never reach its waiting point."""


def supervise(pid: int, control_fd: int, status_fd: int, hard_limit_s: float, is_waiting: bool = False) -> NoReturn:
    """Supervise `pid`, a child of this process, until it and everything it started are gone; then exit.

    Reports its own pid at once, in a line, and at the end how the job ended.
    `is_waiting`: the limit begins with the command GO; until then only its CPU time is limited.
    """
    os.write(status_fd, b"%d\n" % os.getpid())
    supervision = _Supervision(pid, control_fd, hard_limit_s, is_waiting)
    status = supervision.run()
    left = kill_descendants()
    report = {"status": status, "left": left, "expired": supervision.has_expired}
    os.write(status_fd, json.dumps(report).encode("ascii"))
    os._exit(0)


def become_subreaper() -> bool:
    """Adopt the orphans of our descendants from now on; return False where the system cannot."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_dumpable(is_dumpable: bool) -> bool:
    """Decide whether processes of the same user may look into this one: its memory, its files, its environment."""
    return _prctl(_PR_SET_DUMPABLE, int(is_dumpable))


def _prctl(option: int, value: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        import ctypes  # some Pythons are built without it

        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


class _Supervision:
    def __init__(self, pid: int, control_fd: int, hard_limit_s: float, is_waiting: bool) -> None:
        self._pid = pid
        self._hard_limit_s = hard_limit_s
        self._control_fd = control_fd
        self._is_waiting = is_waiting
        self._deadline = math.inf if is_waiting else time.monotonic() + hard_limit_s
        self.has_expired = False
        self._wake_read, wake_write = os.pipe()
        self._inputs = [control_fd, self._wake_read]
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

    def run(self) -> Optional[int]:
        """Wait until the job's own process has ended; return its wait status."""
        while True:
            status = reap(self._pid)
            if status is not None:
                return status
            ready, _, _ = select.select(self._inputs, [], [], self._timeout_s())
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
            if self._control_fd in ready:
                self._obey(os.read(self._control_fd, 1))
            is_busy_instead_of_waiting = self._is_waiting and _cpu_s(self._pid) > _PRESTART_CPU_LIMIT_S
            if time.monotonic() >= self._deadline or is_busy_instead_of_waiting:
                self.has_expired = True
                self._kill_everything()

    def _timeout_s(self) -> float:
        longest_s = _CHECK_WAITING_EVERY_S if self._is_waiting else _CHECK_EVERY_S
        return max(0.0, min(self._deadline - time.monotonic(), longest_s))

    def _obey(self, command: bytes) -> None:
        if command == GO:
            self._is_waiting = False
            self._deadline = time.monotonic() + self._hard_limit_s
        elif command == STACKS:
            send_signal(self._pid, STACKS_SIGNAL)
        elif command == INTERRUPT:
            send_signal(self._pid, signal.SIGINT)
        elif command == TERMINATE:
            for pid in descendants(os.getpid()):
                send_signal(pid, signal.SIGTERM)
        else:  # KILL, or the agent is gone
            self._kill_everything()

    def _kill_everything(self) -> None:
        self._is_waiting = False
        self._inputs = [self._wake_read]
        self._deadline = time.monotonic() + _KILL_LIMIT_S
        kill_descendants(self._pid)


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped this process; False without /proc."""
    return _status_fields(pid)[:1] == [b"T"]


def _cpu_s(pid: int) -> float:
    fields = _status_fields(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def _status_fields(pid: int) -> List[bytes]:
    """Return the fields of /proc/…/stat from the state on; none if the process has just exited."""
    try:
        with open("/proc/{}/stat".format(pid), "rb") as stream:
            # The command name may contain spaces and brackets; the fields we need follow the last bracket.
            return stream.read().rpartition(b")")[2].split()
    except OSError:
        return []


def kill_descendants(main: Optional[int] = None) -> int:
    """Stop all descendants first, so that none can start another, then kill them; return how many are left.

    `main` is not reaped here, so that its wait status stays available.
    """
    deadline = time.monotonic() + _KILL_LIMIT_S
    while True:
        _kill_all(descendants(os.getpid()))
        alive = {pid for pid in descendants(os.getpid()) if pid != main}
        if main is None:
            reap()  # not every init reaps the zombies that we would leave behind
        if not alive or time.monotonic() > deadline:
            return len(alive)
        time.sleep(0.002)


def kill_tree(supervisor_pid: int) -> None:
    """In the agent: kill a supervisor that does not obey, and all its descendants."""
    deadline = time.monotonic() + _KILL_TREE_LIMIT_S
    send_signal(supervisor_pid, signal.SIGSTOP)
    while True:
        found = descendants(supervisor_pid)
        _kill_all(found)
        if not found or time.monotonic() > deadline:
            break
        time.sleep(0.002)
    send_signal(supervisor_pid, signal.SIGKILL)


def _kill_all(pids: List[int]) -> None:
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            send_signal(pid, number)


def descendants(ancestor: int) -> List[int]:
    """Return all living processes below `ancestor`, without zombies."""
    parents = _parents()
    if parents is None:
        return _process_group_members()
    children: Dict[int, List[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: Set[int] = set()
    waiting = [ancestor]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in found:
                found.add(pid)
                waiting.append(pid)
    return sorted(found)


def _parents() -> Optional[Dict[int, int]]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return None
    parents = {}
    for pid in (int(name) for name in names if name.isdigit()):
        fields = _status_fields(pid)
        if fields and fields[0] not in (b"Z", b"X"):
            parents[pid] = int(fields[1])
    return parents


_group: Optional[int] = None


def remember_group(pid: int) -> None:
    """Remember the job's process group: without /proc, nothing else can be found again."""
    global _group
    _group = pid


def _process_group_members() -> List[int]:
    if _group is None:
        return []
    try:
        os.killpg(_group, 0)
    except OSError:
        return []
    return [-_group]


def reap(wanted: Optional[int] = None) -> Optional[int]:
    """Reap every child that has exited; return the wait status of `wanted` if it is among them."""
    result = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return result
        if pid == 0:
            return result
        if pid == wanted:
            result = status
