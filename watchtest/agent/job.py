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

from . import holding, supervise

HEAD_LIMIT = 256 * 1024
TAIL_LIMIT = 64 * 1024
STACKS_LIMIT = 256 * 1024
LINE_LIMIT = 4 * 1024 * 1024
READ_SIZE = 256 * 1024
LADDER_SLACK_S = 30.0
FORSAKEN_S = 1.0

Send = Callable[..., None]


class Job:
    """`order`: argv, cwd, env, limit_s, silence_s, grace_s. With `wants_results` the command gets a pipe for them.

    `close_in_child`: the agent's own files, which must not outlive it in a supervisor. `runs_lock`: held by each
    supervisor while it lives, so that the next agent can wait until the last run of the one before it is gone.
    """

    def __init__(
        self, identity: int, order: Dict[str, Any], send: Send, close_in_child: List[int], runs_lock: str
    ) -> None:
        self.identity = identity
        self._send = send
        self._grace_s = float(order["grace_s"])
        self._limit_s = float(order["limit_s"])
        self._silence_s = float(order["silence_s"])
        self._started = self._last_sign = time.monotonic()
        self._kept = _Kept()
        self._stacks = b""
        self._lines = b""
        self._current = ""
        self._ladder: List[bytes] = []
        self._next_rung = 0.0
        self._stopped: Optional[str] = None
        self._reason = ""
        self._report = b""
        self._supervisor_left_at: Optional[float] = None
        self._wants_stacks = bool(order.get("wants_results"))  # the signal would end what does not listen for it
        self._oom_before = oom_kills()
        self._spawn(order, close_in_child, runs_lock)

    @property
    def fds(self) -> List[int]:
        return list(self._handlers)

    @property
    def is_over(self) -> bool:
        return not self._handlers

    # -- starting ----------------------------------------------------------------------------------

    def _spawn(self, order: Dict[str, Any], close_in_child: List[int], runs_lock: str) -> None:
        output, output_child = os.pipe()
        results, results_child = os.pipe()
        stacks, stacks_child = os.pipe()
        status, status_child = os.pipe()
        control_child, self._control = os.pipe()
        hard_limit_s = self._limit_s + 3 * self._grace_s + LADDER_SLACK_S
        self._supervisor = os.fork()
        if self._supervisor == 0:
            try:
                for fd in [output, results, stacks, status, self._control, *close_in_child]:
                    os.close(fd)
                os.dup2(os.open(os.devnull, os.O_RDWR), 0)  # in place of the channel
                holding.share(runs_lock)
                pid = start(order, output_child, results_child, stacks_child)
                for fd in (output_child, results_child, stacks_child):
                    os.close(fd)
                supervise.supervise(pid, control_child, status_child, hard_limit_s)
            finally:
                os._exit(70)  # only after an exception: the agent sees no report and says so
        for fd in (output_child, results_child, stacks_child, status_child, control_child):
            os.close(fd)
        self._handlers = {
            output: self._on_output,
            results: self._on_results,
            stacks: self._on_stacks,
            status: self._on_status,
        }

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
        for line in lines:
            self._note_current(line)
        if lines:
            self._send({"t": "results", "id": self.identity}, b"\n".join(lines) + b"\n")

    def _note_current(self, line: bytes) -> None:
        if line.startswith(b'{"k":"start"'):
            try:
                self._current = str(json.loads(line.decode("utf-8"))["test"])
            except (ValueError, KeyError, RecursionError):
                self._current = ""
        elif line.startswith(b'{"k":"test"'):
            self._current = ""

    # -- limits and stopping -----------------------------------------------------------------------

    def tick(self) -> None:
        now = time.monotonic()
        if self._stopped is None and now - self._started > self._limit_s:
            self._expire("the run took longer than {:g} s".format(self._limit_s))
        elif self._stopped is None and now - self._last_sign > self._silence_s:
            self._expire("nothing was heard of the run for {:g} s".format(self._silence_s))
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
        where = ", in {}".format(self._current) if self._current else ""
        self._reason = reason + where
        if self._wants_stacks:
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
        os.waitpid(self._supervisor, 0)
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
            "current": self._current,
            "left": report["left"],
            "dropped": self._kept.dropped,
            "tail": self._kept.tail.decode("utf-8", "replace"),
            "stacks": self._stacks.decode("utf-8", "replace"),
            "duration_s": time.monotonic() - self._started,
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
    return dict(order, env=env, cwd=os.path.join(root, order.get("cwd") or ""))


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal {}".format(number)


def start(order: Dict[str, Any], output_fd: int, results_fd: int = -1, stacks_fd: int = -1) -> int:
    """In the supervisor: fork and execute the command. Its pid."""
    os.setsid()
    supervise.become_subreaper()
    pid = os.fork()
    if pid:
        supervise.remember_group(pid)
        return pid
    try:
        os.setsid()
        _prefer_for_oom(order.get("oom_score", 1000))
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output_fd, 1)
        os.dup2(output_fd, 2)
        env = dict(order["env"])
        if order.get("wants_results"):
            for name, fd in (("WATCHTEST_RESULTS_FD", results_fd), ("WATCHTEST_STACKS_FD", stacks_fd)):
                os.set_inheritable(fd, True)
                env[name] = str(fd)
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(order["cwd"])
        os.execvpe(order["argv"][0], order["argv"], env)
    except OSError as error:
        message = "watchtest: cannot start {}: {}\n".format(order["argv"][0], error.strerror)
        os.write(2, message.encode("utf-8", "replace"))
    finally:
        os._exit(127)


def _prefer_for_oom(score: int) -> None:
    """When memory runs out, the kernel shall take the tests first, then a service, and never the agent."""
    try:
        with open("/proc/self/oom_score_adj", "w") as stream:
            stream.write(str(score))
    except OSError:
        pass  # not Linux, or not allowed: then the kernel chooses


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
