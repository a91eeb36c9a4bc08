"""A running job: a supervised process with limits, its output and its results. At most one runs at a time.

The agent's loop calls `_on_readable` and `tick`; nothing here blocks. A job is over when its supervisor has reported
how it ended and every pipe is closed, so no result that was written is missed.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
from typing import Any, Callable, Dict, List, Optional

from .. import box_lock
from ..rows import RowKind, RowSignatures, parse_row
from . import job_limits, job_process, supervisor
from .disk_watch import DiskWatch
from .job_limits import LINE_LIMIT, BoundedOutput, StopPolicy, death_reason

STACKS_LIMIT = 256 * 1024
READ_SIZE = 256 * 1024
ORPHANED_PIPE_S = 1.0
COMMANDS = {
    job_limits.DUMP_STACKS: supervisor.STACKS,
    job_limits.INTERRUPT: supervisor.INTERRUPT,
    job_limits.TERMINATE: supervisor.TERMINATE,
    job_limits.KILL: supervisor.KILL,
}
"""The command to the supervisor for each step of a stop."""

READ_HERE = (RowKind.START, RowKind.TEST, RowKind.MODULES, RowKind.VITAL, RowKind.COLD)
"""The rows of our plugin that the agent evaluates."""
REVIVE_EVERY_S, REVIVE_LIMIT = 1.0, 5
"""How often a stopped supervisor is looked for, and how many times it is continued before the run is killed."""
FILLED = "the run has filled the disk of {}"
Send = Callable[..., None]


class RunningJob:
    """`order`: argv, cwd, env, limit_s, silence_s, test_s, grace_s, results (pipe, stdout or none), report (a file).

    `selector`: each pipe is registered with it until it ends.
    `supervisor_pid`: our child, to be reaped at the end; None for a warm run, whose supervisor the zygote has forked.
    `cold_because`: why a run that should be warm is not.
    """

    def __init__(
        self,
        job_id: int,
        order: Dict[str, Any],
        send: Send,
        selector: selectors.BaseSelector,
        ends: job_process.PipeEnds,
        supervisor_pid: Optional[int],
        disks: DiskWatch,
        key: bytes,
        cold_because: str = "",
    ) -> None:
        self.job_id = job_id
        self.order = order
        self._send = send
        self._selector = selector
        self._supervisor_pid = supervisor_pid
        self._cold_because = cold_because
        self._control = ends.control
        self._disks = disks
        self._rows = RowSignatures(key)
        self._has_our_rows = order.get("results") == "pipe"
        self._policy = StopPolicy(
            run_s=float(order["limit_s"]),
            silence_s=float(order["silence_s"]),
            grace_s=float(order["grace_s"]),
            test_s=float(order.get("test_s") or 0.0),
            has_stacks=self._has_our_rows,  # the signal would end a process that does not handle it
        )
        self._output = BoundedOutput()
        self._stacks = b""
        self._unfinished_line = b""
        self._report = b""
        self._supervisor_left_at: Optional[float] = None
        self._next_look_at = time.monotonic() + REVIVE_EVERY_S
        self._revivals = 0
        self._oom_before = oom_kills()
        self.modules: Optional[Dict[str, Any]] = None
        """The row with the modules that the run imported."""
        self.vital_files: Any = None
        """Describes the files that the tests' own Python had loaded before the first test."""
        self.wants_cold = ""
        """Why a warm run must be repeated in a fresh process; it says so before its first test."""
        self.avoid: List[Any] = []
        """The preloaded modules that are the cause."""
        self._handlers = {
            ends.output: self._on_output,
            ends.results: self._on_results,
            ends.stacks: self._on_stacks,
            ends.status: self._on_status,
        }
        for fd in self._handlers:
            selector.register(fd, selectors.EVENT_READ, self._on_readable)

    @property
    def is_over(self) -> bool:
        return not self._handlers

    @property
    def has_been_stopped(self) -> bool:
        return self._policy.stopped is not None

    # -- reading -----------------------------------------------------------------------------------

    def _on_readable(self, fd: int) -> None:
        piece = os.read(fd, READ_SIZE)
        if piece:
            self._handlers[fd](piece)
        else:
            self._drop(fd)

    def _drop(self, fd: int) -> None:
        if self._handlers.pop(fd) == self._on_status:
            self._supervisor_left_at = time.monotonic()
        self._selector.unregister(fd)
        os.close(fd)

    def _on_output(self, piece: bytes) -> None:
        self._policy.note_output()
        head = self._output.add(piece)
        if head:
            self._send({"t": "output", "id": self.job_id}, head)

    def _on_stacks(self, piece: bytes) -> None:
        self._stacks = (self._stacks + piece)[:STACKS_LIMIT]

    def _on_status(self, piece: bytes) -> None:
        self._report += piece

    def _on_results(self, piece: bytes) -> None:
        self._policy.note_output()
        lines = (self._unfinished_line + piece).split(b"\n")
        self._unfinished_line = lines.pop()
        if len(self._unfinished_line) > LINE_LIMIT:
            self._unfinished_line = b""  # not written by our plugin, whose rows are bounded
        if self._has_our_rows:
            lines = [line for line in map(self._rows.verified, lines) if line and self._is_for_host(line)]
        else:
            for line in lines:
                if not line.startswith(b"{"):
                    self._on_output(line + b"\n")
            lines = [line for line in lines if line.startswith(b"{")]
        if lines:
            self._send({"t": "results", "id": self.job_id}, b"\n".join(lines) + b"\n")

    def _is_for_host(self, line: bytes) -> bool:
        """Evaluate a row of our plugin; return whether the host gets it, too."""
        row = parse_row(line)
        kind = row.get("k") if row is not None else None
        if row is None or kind not in READ_HERE:
            return row is not None
        try:
            if kind == RowKind.START:
                self._policy.note_test_start(str(row["test"]))
            elif kind == RowKind.TEST:
                self._policy.note_test_end(str(row["test"]))
            elif kind == RowKind.MODULES:
                self.modules = row
            elif kind == RowKind.VITAL:
                if not self._policy.has_started_tests:
                    self.vital_files = row["files"]
            elif not self._policy.current_test:
                self.wants_cold, self.avoid = str(row["why"]), list(row["avoid"])
        except (KeyError, TypeError):
            pass  # a test has written to our pipe
        return kind in (RowKind.START, RowKind.TEST)

    # -- limits and stopping -----------------------------------------------------------------------

    def tick(self) -> None:
        """Check the limits, take the next step of a stop when it is due, and close pipes that will not end."""
        filled = self._disks.filled()
        if filled:
            self._policy.fail(FILLED.format(filled))
        if time.monotonic() >= self._next_look_at:
            self._next_look_at = time.monotonic() + REVIVE_EVERY_S
            self._revive_supervisor()
        step = self._policy.due_step()
        if step is not None:
            self._take_step(step)
        left_at = self._supervisor_left_at
        if left_at is not None and time.monotonic() - left_at > ORPHANED_PIPE_S:
            for fd in list(self._handlers):
                self._drop(fd)  # a process out of our reach still holds it open

    def _living_supervisor(self) -> Optional[int]:
        pid = self._report.partition(b"\n")[0]
        return int(pid) if pid.isdigit() and self._supervisor_left_at is None else None

    def _revive_supervisor(self) -> None:
        """Continue the supervisor if a test has stopped it: without it, nobody notices that the run has ended."""
        pid = self._living_supervisor()
        if pid is None or not supervisor.is_stopped(pid):
            return
        box_lock.send_signal(pid, signal.SIGCONT)
        self._revivals += 1
        if self._revivals > REVIVE_LIMIT:
            self._policy.fail("the run keeps stopping its supervisor")

    def _take_step(self, step: str) -> None:
        pid = self._living_supervisor()
        if pid is not None:
            box_lock.send_signal(pid, signal.SIGCONT)  # a test may have stopped it
            if step == job_limits.KILL_SUPERVISOR:
                supervisor.kill_tree(pid)
        try:
            os.write(self._control, COMMANDS.get(step, supervisor.KILL))
        except OSError:
            pass  # the supervisor has already exited

    def stop(self, is_kill: bool) -> None:
        self._policy.stop(is_kill)
        self.tick()

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> Dict[str, Any]:
        """Return how it ended, once `is_over`."""
        os.close(self._control)
        if self._supervisor_pid is not None:
            os.waitpid(self._supervisor_pid, 0)
        if self._unfinished_line and not self._has_our_rows:
            self._on_results(b"\n")  # the last line may lack its newline
        filled = self._disks.filled_now()
        if filled:
            self._disks.clean()
        if filled and self._policy.current_test:
            self._policy.fail(FILLED.format(filled))
        stopped, reason, test = self._policy.stopped, self._policy.reason, self._policy.current_test
        try:
            report = json.loads(self._report.partition(b"\n")[2].decode("ascii"))
        except ValueError:
            report = {"status": None, "left": 0, "expired": False, "is_orphaned": True}
            reason = reason or "the supervisor of the run was killed"
        status = report["status"]
        exit_code = os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None
        if report["expired"] and stopped is None:
            stopped = "timed_out"
        if not reason and exit_code is None and status is not None:
            reason = death_reason(signal_name(os.WTERMSIG(status)), oom_kills() > self._oom_before, test)
        elif not reason and exit_code is not None and test:
            reason = "the process exited with {} in {}".format(exit_code, test)
        return {
            "is_orphaned": report.get("is_orphaned", False),
            "exit_code": exit_code,
            "stopped": stopped,
            "reason": reason,
            "current": test,
            "left": report["left"],
            "damage": FILLED.format(filled) if self._disks.filled_now() else "",
            "dropped": self._output.dropped,
            "tail": self._output.tail.decode("utf-8", "replace"),
            "stacks": self._stacks.decode("utf-8", "replace"),
            "duration_s": self._policy.duration_s,
            "is_warm": self._supervisor_pid is None,
            "cold_because": self._cold_because,
        }


def complete(order: Dict[str, Any], variable: str, home: str, root: str) -> Dict[str, Any]:
    """Return the order with its full environment, in which `variable` marks this box, and its folder."""
    env = dict(os.environ)
    env[variable] = home
    env.update(order.get("env") or {})
    env["PATH"] = os.pathsep.join([*order.get("path_first", ()), env.get("PATH") or os.defpath])
    return dict(order, env=env, cwd=os.path.join(root, order.get("cwd") or ""))


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal {}".format(number)


def oom_kills() -> int:
    """Return the kernel's count of out-of-memory kills in this box (cgroup v2, v1); 0 where it is not available."""
    for file in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            with open(file) as stream:
                rows = dict(line.split() for line in stream if len(line.split()) == 2)
            return int(rows.get("oom_kill", "0"))
        except (OSError, ValueError):
            continue
    return 0
