"""Starts the process of a job: its pipes, the supervisor around it, and the command itself."""

from __future__ import annotations

import fcntl
import os
import signal
from typing import Any, Dict, List, NamedTuple

from .. import box_lock, rows
from . import supervisor

TESTS_OOM_SCORE = 1000
SET_PIPE_SIZE = 1031
"""fcntl.F_SETPIPE_SZ, which Python has only from 3.10 on."""
RESULTS_PIPE_SIZE = 1024 * 1024


class PipeEnds(NamedTuple):
    """One end of each pipe of a job. The agent writes to `control` and reads all others."""

    output: int
    results: int
    stacks: int
    status: int
    control: int

    def close(self) -> None:
        for fd in self:
            os.close(fd)


class JobPipes:
    """All pipes of a job: the ends that the agent keeps, and those of the job and its supervisor."""

    def __init__(self) -> None:
        pairs = {name: os.pipe() for name in PipeEnds._fields}
        _enlarge(pairs["results"][1])
        pairs["control"] = pairs["control"][::-1]
        self.agent_ends = PipeEnds(**{name: pair[0] for name, pair in pairs.items()})
        self.job_ends = PipeEnds(**{name: pair[1] for name, pair in pairs.items()})


def _enlarge(pipe: int) -> None:
    """Make room for the rows that a prestarted run writes before the agent reads them."""
    try:
        fcntl.fcntl(pipe, SET_PIPE_SIZE, RESULTS_PIPE_SIZE)
    except OSError:
        pass  # not Linux, or not permitted: a prestarted run may block, and another run replaces it


def start_cold(
    order: Dict[str, Any], pipes: JobPipes, close_in_child: List[int], runs_lock: str, hard_limit_s: float, key: bytes
) -> int:
    """Fork a supervisor that executes the command; return its pid.

    `close_in_child`: the agent's own files, which must not outlive it in a supervisor. `runs_lock`: each supervisor
    holds it while it lives, so that the next agent can wait for the last run of its predecessor.
    """
    supervisor_pid = os.fork()
    if supervisor_pid:
        return supervisor_pid
    try:
        pipes.agent_ends.close()
        for fd in close_in_child:
            os.close(fd)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)  # in place of the channel
        supervisor.set_dumpable(True)  # so that the next agent may find it
        box_lock.hold_shared(runs_lock)
        pid = start(order, pipes.job_ends.output, pipes.job_ends.results, pipes.job_ends.stacks, key)
        supervise(pid, pipes.job_ends, hard_limit_s)
    finally:
        os._exit(70)  # only after an exception: the agent notices the missing report


def supervise(pid: int, ends: PipeEnds, hard_limit_s: float, is_waiting: bool = False) -> None:
    """In the supervisor: close the pipes that only the job needs, and supervise `pid` to the end. Never returns.

    `is_waiting`: the limit begins when the run gets the command to go.
    """
    for fd in (ends.output, ends.results, ends.stacks):
        os.close(fd)
    supervisor.supervise(pid, ends.control, ends.status, hard_limit_s, is_waiting)


def start(order: Dict[str, Any], output_fd: int, results_fd: int = -1, stacks_fd: int = -1, key: bytes = b"") -> int:
    """In the supervisor: fork and execute the command; return its pid."""
    os.setsid()
    supervisor.become_subreaper()
    pid = os.fork()
    if pid:
        supervisor.remember_group(pid)
        return pid
    try:
        results = order.get("results")
        stdout = results_fd if results == "stdout" else output_fd
        detach(stdout, output_fd, order.get("oom_score", TESTS_OOM_SCORE))
        env = dict(order["env"])
        if results == "pipe":
            fds = {rows.RESULTS: results_fd, rows.STACKS: stacks_fd, rows.KEY: _pipe_with(key)}
            for name, fd in fds.items():
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


def _pipe_with(content: bytes) -> int:
    """Return the reading end of a pipe that holds just this."""
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return reading


def detach(stdout: int, stderr: int, oom_score: int) -> None:
    """In the job's own process: start a new session with standard streams as a fresh process has them."""
    os.setsid()
    supervisor.set_dumpable(True)
    _set_oom_score(oom_score)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)


def _set_oom_score(score: int) -> None:
    """When memory runs out, the kernel should kill the tests first, then a service, and never the agent."""
    try:
        with open("/proc/self/oom_score_adj", "w") as stream:
            stream.write(str(score))
    except OSError:
        pass  # not Linux, or not permitted
