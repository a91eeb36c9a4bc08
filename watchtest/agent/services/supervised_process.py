"""A process of the service manager with a supervisor of its own: a service, or the command of a ready check.

Everything it starts ends with it, and all of it ends with the service manager: the supervisor sees its pipe close.
"""

from __future__ import annotations

import json
import math
import os
import signal
from typing import Any, Dict, List, Optional

from .. import box_lock
from ..jobs import job, job_process, supervisor

READ_SIZE = 64 * 1024


class SupervisedProcess:
    """`order`: argv, env, cwd. It is over when its supervisor has reported; `end` then describes how it ended."""

    def __init__(self, order: Dict[str, Any], lock: str, limit_s: float = math.inf) -> None:
        self._output, output_child = os.pipe()
        self._status, status_child = os.pipe()
        control_child, self._control = os.pipe()
        self._oom_before = job.oom_kills()
        self._report = b""
        pipes = [self._output, output_child, self._status, status_child, control_child, self._control]
        self.supervisor_pid = fork(pipes)
        if self.supervisor_pid == 0:
            try:
                detach_from_parent([output_child, status_child, control_child])
                box_lock.hold_shared(lock)
                pid = job_process.start(order, output_child)
                os.close(output_child)
                supervisor.supervise(pid, control_child, status_child, limit_s)
            finally:
                os._exit(70)  # only after an exception: the service manager notices the missing report
        for fd in (output_child, status_child, control_child):
            os.close(fd)
        os.set_blocking(self._output, False)
        self._open = [self._output, self._status]

    @property
    def fds(self) -> List[int]:
        return list(self._open)

    @property
    def is_over(self) -> bool:
        return self._status not in self._open

    def read(self, fd: int) -> bytes:
        """Read from one of its pipes; return what it printed, if `fd` is its output."""
        piece = _read(fd)
        if piece == b"":
            self._drop(fd)
        elif fd == self._status:
            self._report += piece or b""
        return piece or b"" if fd == self._output else b""

    def terminate(self) -> None:
        self._command(supervisor.TERMINATE)

    def kill(self) -> None:
        self._command(supervisor.KILL)

    def close(self) -> bytes:
        """Close its pipes and return the last of its output; call it once the process is over."""
        rest = b""
        while self._output in self._open:
            piece = self.read(self._output)
            rest += piece
            if not piece:
                break
        for fd in [*self._open, self._control]:
            os.close(fd)
        self._open = []
        return rest

    @property
    def was_abandoned(self) -> bool:
        """Its supervisor was killed, so that what it supervised may still be running."""
        return self._parsed is None

    @property
    def exit_code(self) -> Optional[int]:
        status = self._wait_status
        return os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None

    @property
    def end(self) -> str:
        """How it ended, to be put after its name: `exited with code 3`."""
        status = self._wait_status
        if self._parsed is None:
            return "lost its supervisor, which was killed"
        if self._parsed.get("expired"):
            return "took too long"
        if status is None:
            return "ended in an unknown way"
        if os.WIFEXITED(status):
            return "exited with code {}".format(os.WEXITSTATUS(status))
        number = os.WTERMSIG(status)
        if number == signal.SIGKILL and job.oom_kills() > self._oom_before:
            return "was killed by the kernel: out of memory"
        return "was ended by {}".format(job.signal_name(number))

    @property
    def _wait_status(self) -> Optional[int]:
        status = (self._parsed or {}).get("status")
        return status if isinstance(status, int) else None

    @property
    def _parsed(self) -> Optional[Dict[str, Any]]:
        try:
            report = json.loads(self._report.decode("ascii"))
        except ValueError:
            return None
        return report if isinstance(report, dict) else None

    def _command(self, command: bytes) -> None:
        try:
            os.write(self._control, command)
        except OSError:
            pass  # the supervisor has already exited

    def _drop(self, fd: int) -> None:
        self._open.remove(fd)
        os.close(fd)


def fork(pipes: List[int]) -> int:
    """Fork; if that fails, close these pipes before raising."""
    try:
        return os.fork()
    except OSError:
        for fd in pipes:
            os.close(fd)
        raise


def detach_from_parent(kept: List[int]) -> None:
    """After a fork: close all files of the parent but these, detach stdin and stdout, reset its signal handling."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    for fd in map(int, os.listdir(folder)):
        if fd > 2 and fd not in kept:
            try:
                os.close(fd)
            except OSError:
                continue  # the one that listed the folder
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    if null > 2:
        os.close(null)


def _read(fd: int) -> Optional[bytes]:
    """Return b"" at the end, None while there is nothing to read."""
    try:
        return os.read(fd, READ_SIZE)
    except BlockingIOError:
        return None
