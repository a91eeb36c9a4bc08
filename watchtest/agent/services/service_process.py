"""A process of the service manager with a supervisor of its own: a service, or the command of a ready check.

Everything it starts ends with it, and all of it ends with the service manager: the supervisor sees its pipe close.
Whether a service that ended is restarted is up to `service`, which knows its `restart_limit`.
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


class ServiceProcess:
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
        try:
            piece = os.read(fd, READ_SIZE)
        except BlockingIOError:
            return b""
        if not piece:
            self._open.remove(fd)
            os.close(fd)
        elif fd == self._status:
            self._report += piece
        return piece if fd == self._output else b""

    def command(self, command: bytes) -> None:
        """Send its supervisor a command, such as `supervisor.TERMINATE`."""
        try:
            os.write(self._control, command)
        except OSError:
            pass  # the supervisor has already exited

    def close(self) -> bytes:
        """Close its pipes and return the last of its output; call it once the process is over."""
        rest = b""
        while self._output in self._open and (piece := self.read(self._output)):
            rest += piece
        for fd in [*self._open, self._control]:
            os.close(fd)
        self._open = []
        return rest

    @property
    def was_abandoned(self) -> bool:
        """Its supervisor was killed, so that what it supervised may still be running."""
        return not self._parsed_report

    @property
    def exit_code(self) -> Optional[int]:
        status = self._parsed_report.get("status")
        return os.WEXITSTATUS(status) if isinstance(status, int) and os.WIFEXITED(status) else None

    @property
    def end(self) -> str:
        """How it ended, to be put after its name: `exited with code 3`."""
        report, status = self._parsed_report, self._parsed_report.get("status")
        if not report:
            return "lost its supervisor, which was killed"
        if report.get("expired"):
            return "took too long"
        if not isinstance(status, int):
            return "ended in an unknown way"
        if self.exit_code is not None:
            return "exited with code {}".format(self.exit_code)
        number = os.WTERMSIG(status)
        if number == signal.SIGKILL and job.oom_kills() > self._oom_before:
            return "was killed by the kernel: out of memory"
        return "was ended by {}".format(job.signal_name(number))

    @property
    def _parsed_report(self) -> Dict[str, Any]:
        """What its supervisor has reported behind the line with its pid; empty if it was killed before it could."""
        try:
            report = json.loads(self._report.partition(b"\n")[2].decode("ascii"))
        except ValueError:
            return {}
        return report if isinstance(report, dict) else {}


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
