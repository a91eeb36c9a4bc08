"""One job: a supervised process with limits, its output and its results. At most one runs at a time.

The agent's loop calls `on_readable` and `tick`; nothing here blocks. A job is over when its supervisor has said how it
ended and every pipe is at its end, so no result that was written is ever missed.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any, Callable, Dict, List, Optional

from . import job_process as launch
from . import supervisor as supervise

HEAD_LIMIT = 256 * 1024
TAIL_LIMIT = 64 * 1024
STACKS_LIMIT = 256 * 1024
LINE_LIMIT = 4 * 1024 * 1024
READ_SIZE = 256 * 1024
HARD_SLACK_S = 30.0
"""Beyond its limit and the ladder of signals; after this the supervisor acts by itself."""
FORSAKEN_S = 1.0

Send = Callable[..., None]


class Job:
    """`order`: argv, cwd, env, limit_s, silence_s, test_s, grace_s, results (pipe, stdout or none), report (a file).

    `supervisor`: the pid of a child of ours that is to be reaped at the end; None: another process was asked to fork
    it, which makes it a warm one. `cold_because`: why it is not, where that was wished.
    """

    def __init__(
        self,
        identity: int,
        order: Dict[str, Any],
        send: Send,
        own: launch.Ends,
        supervisor: Optional[int],
        cold_because: str = "",
    ) -> None:
        self.identity = identity
        self.order = order
        self._send = send
        self._supervisor = supervisor
        self._cold_because = cold_because
        self._control = own.control
        self._grace_s = float(order["grace_s"])
        self._limit_s = float(order["limit_s"])
        self._silence_s = float(order["silence_s"])
        self._test_s = float(order.get("test_s") or 0.0)
        self._started = self._last_sign = time.monotonic()
        self._kept = _Kept()
        self._stacks = b""
        self._lines = b""
        self._begun: Dict[str, float] = {}
        self._ladder: List[bytes] = []
        self._next_rung = 0.0
        self._stopped: Optional[str] = None
        self._hung_in = ""
        self._reason = ""
        self._report = b""
        self._supervisor_left_at: Optional[float] = None
        self._has_rows_of_ours = order.get("results") == "pipe"
        self._oom_before = oom_kills()
        self.modules: Optional[Dict[str, Any]] = None
        """What the run had imported, where it told."""
        self.wants_cold = ""
        """Why a warm run must not be believed, said by itself before its first test."""
        self.avoid: List[Any] = []
        """The preloaded modules that are the cause."""
        self._handlers = {
            own.output: self._on_output,
            own.results: self._on_results,
            own.stacks: self._on_stacks,
            own.status: self._on_status,
        }

    @property
    def fds(self) -> List[int]:
        return list(self._handlers)

    @property
    def is_over(self) -> bool:
        return not self._handlers

    @property
    def has_been_stopped(self) -> bool:
        return self._stopped is not None

    @property
    def _current(self) -> str:
        """The test that has begun and not ended; of several side by side the one that began first."""
        return next(iter(self._begun), "")

    # -- reading -----------------------------------------------------------------------------------

    def on_readable(self, fd: int) -> bool:
        """Take what is there; False at the end of that pipe."""
        piece = os.read(fd, READ_SIZE)
        if piece:
            self._handlers[fd](piece)
        return bool(piece)

    def drop(self, fd: int) -> None:
        if self._handlers.pop(fd) == self._on_status:
            self._supervisor_left_at = time.monotonic()
        os.close(fd)

    def forsaken(self) -> List[int]:
        """Pipes that somebody out of reach still holds, a while after the supervisor has swept and left."""
        left_at = self._supervisor_left_at
        return self.fds if left_at is not None and time.monotonic() - left_at > FORSAKEN_S else []

    def _on_output(self, piece: bytes) -> None:
        self._last_sign = time.monotonic()
        shown = self._kept.add(piece)
        if shown:
            self._send({"t": "output", "id": self.identity}, shown)

    def _on_stacks(self, piece: bytes) -> None:
        self._stacks = (self._stacks + piece)[:STACKS_LIMIT]

    def _on_status(self, piece: bytes) -> None:
        self._report += piece

    def _on_results(self, piece: bytes) -> None:
        self._last_sign = time.monotonic()
        lines = (self._lines + piece).split(b"\n")
        self._lines = lines.pop()
        if len(self._lines) > LINE_LIMIT:
            self._lines = b""  # not ours: our plugin bounds what it writes
        if self._has_rows_of_ours:
            lines = [line for line in lines if not self._is_for_us(line)]
        else:
            for line in lines:
                if not line.startswith(b"{"):
                    self._on_output(line + b"\n")
            lines = [line for line in lines if line.startswith(b"{")]
        if lines:
            self._send({"t": "results", "id": self.identity}, b"\n".join(lines) + b"\n")

    def _is_for_us(self, line: bytes) -> bool:
        """Take note of a row of our plugin; whether it goes no further."""
        kind = line[6:16].partition(b'"')[0] if line.startswith(b'{"k":"') else b""
        if kind not in (b"start", b"test", b"modules", b"cold"):
            return False
        try:
            row = json.loads(line.decode("utf-8"))
            if kind == b"start":
                self._begun[str(row["test"])] = time.monotonic()
            elif kind == b"test":
                self._begun.pop(str(row["test"]), None)
            elif kind == b"modules":
                self.modules = row
            elif not self._begun:
                self.wants_cold = str(row["why"])
                self.avoid = list(row["avoid"])
        except (ValueError, KeyError, TypeError, RecursionError):
            pass  # a test found our pipe
        return kind in (b"modules", b"cold")

    # -- limits and stopping -----------------------------------------------------------------------

    def tick(self) -> None:
        now = time.monotonic()
        if self._stopped is None and now - self._started > self._limit_s:
            self._expire("the run took longer than {:g} s".format(self._limit_s))
        elif self._stopped is None and now - self._last_sign > self._silence_s:
            self._expire("nothing was heard of the run for {:g} s".format(self._silence_s))
        elif self._stopped is None and self._test_s and now - self._begun.get(self._current, now) > self._test_s:
            self._expire("a test took longer than {:g} s".format(self._test_s))
        if self._ladder and now >= self._next_rung:
            self._command(self._ladder.pop(0))
            self._next_rung = now + self._grace_s

    def stop(self, is_kill: bool) -> None:
        if is_kill:
            self._stopped = "killed"
            self._ladder = []
            self._command(supervise.KILL)
        elif self._stopped is None:
            self._stopped = "cancelled"
            self._climb([supervise.INTERRUPT, supervise.TERMINATE, supervise.KILL])

    def _expire(self, reason: str) -> None:
        self._stopped = "timed_out"
        self._hung_in = self._current
        where = ", in {}".format(self._hung_in) if self._hung_in else ""
        self._reason = reason + where
        if self._has_rows_of_ours:  # the signal would end what does not listen for it
            self._command(supervise.STACKS)
        self._climb([supervise.INTERRUPT, supervise.TERMINATE, supervise.KILL])
        self._next_rung = time.monotonic() + 0.2  # the stacks first

    def _climb(self, ladder: List[bytes]) -> None:
        self._ladder = ladder
        self._next_rung = time.monotonic()

    def _command(self, command: bytes) -> None:
        try:
            os.write(self._control, command)
        except OSError:
            pass  # the supervisor has ended by itself, which is what was wanted

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> Dict[str, Any]:
        """How it ended, once `is_over`."""
        os.close(self._control)
        if self._supervisor is not None:
            os.waitpid(self._supervisor, 0)
        if self._lines and not self._has_rows_of_ours:
            self._on_results(b"\n")  # a last line without its end
        try:
            report = json.loads(self._report.decode("ascii"))
        except ValueError:
            report = {"status": None, "left": 0, "expired": False, "is_orphaned": True}
            self._reason = self._reason or "the supervisor of the run was killed"
        status = report["status"]
        exit_code = os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None
        if report["expired"] and self._stopped is None:
            self._stopped = "timed_out"
        if not self._reason and exit_code is None and status is not None:
            self._reason = self._signal_reason(os.WTERMSIG(status))
        elif not self._reason and exit_code is not None and self._current:
            self._reason = "the process exited with {} in {}".format(exit_code, self._current)
        return {
            "is_orphaned": report.get("is_orphaned", False),
            "exit_code": exit_code,
            "stopped": self._stopped,
            "reason": self._reason,
            "current": self._hung_in or self._current,
            "left": report["left"],
            "dropped": self._kept.dropped,
            "tail": self._kept.tail.decode("utf-8", "replace"),
            "stacks": self._stacks.decode("utf-8", "replace"),
            "duration_s": time.monotonic() - self._started,
            "is_warm": self._supervisor is None,
            "cold_because": self._cold_because,
        }

    def _signal_reason(self, number: int) -> str:
        where = " in {}".format(self._current) if self._current else ""
        if number == signal.SIGKILL and oom_kills() > self._oom_before:
            return "out of memory: the kernel killed the run{}".format(where)
        return "the process was ended by {}{}".format(signal_name(number), where)


class _Kept:
    """Output, bounded: the head goes out at once, of the rest only the tail is kept, what lies between is counted."""

    def __init__(self) -> None:
        self._sent = 0
        self.tail = b""
        self.dropped = 0

    def add(self, piece: bytes) -> bytes:
        room = HEAD_LIMIT - self._sent
        head, rest = piece[:room], piece[room:] if room > 0 else piece
        head = head if room > 0 else b""
        self._sent += len(head)
        self.tail += rest
        surplus = len(self.tail) - TAIL_LIMIT
        if surplus > 0:
            self.tail = self.tail[surplus:]
            self.dropped += surplus
        return head


def complete(order: Dict[str, Any], variable: str, home: str, root: str) -> Dict[str, Any]:
    """The order with its whole environment, marked as this box's by `variable`, and its folder."""
    env = dict(os.environ)
    env[variable] = home
    env.update(order.get("env") or {})
    env["PATH"] = os.pathsep.join([*order.get("path_first", ()), env.get("PATH") or os.defpath])
    return dict(order, env=env, root=root, cwd=os.path.join(root, order.get("cwd") or ""))


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal {}".format(number)


def oom_kills() -> int:
    """The kernel's count of out-of-memory kills in this box (cgroup v2, v1); 0 where it does not tell."""
    for file in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            with open(file) as stream:
                rows = dict(line.split() for line in stream if len(line.split()) == 2)
            return int(rows.get("oom_kill", "0"))
        except (OSError, ValueError):
            continue
    return 0
