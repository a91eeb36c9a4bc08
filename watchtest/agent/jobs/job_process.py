"""How the process of a job comes to be: pipes, a supervisor around it, and the command in the middle."""

from __future__ import annotations

import fcntl
import os
import signal
from typing import Any, Dict, List

from .. import box_lock
from . import supervisor as supervise

TESTS_OOM_SCORE = 1000
NAMES = ("output", "results", "stacks", "status", "control")
SET_PIPE_SIZE = 1031
"""fcntl.F_SETPIPE_SZ, which has its name only from Python 3.10 on."""
RESULTS_ROOM = 1024 * 1024


class Ends:
    """One end of each pipe of a job. `control` is written by the agent, all others are read by it."""

    def __init__(self, output: int, results: int, stacks: int, status: int, control: int) -> None:
        self.output = output
        self.results = results
        self.stacks = stacks
        self.status = status
        self.control = control

    def all(self) -> List[int]:
        return [getattr(self, name) for name in NAMES]

    def close(self) -> None:
        for fd in self.all():
            os.close(fd)


class Pipes:
    """The ends that the agent keeps, and those that it gives away."""

    def __init__(self) -> None:
        pairs = {name: os.pipe() for name in NAMES}
        _widen(pairs["results"][1])
        pairs["control"] = pairs["control"][::-1]
        self.own = Ends(**{name: pair[0] for name, pair in pairs.items()})
        self.given = Ends(**{name: pair[1] for name, pair in pairs.items()})


def _widen(pipe: int) -> None:
    """Room for what a run that was begun ahead has to tell before anybody reads it."""
    try:
        fcntl.fcntl(pipe, SET_PIPE_SIZE, RESULTS_ROOM)
    except OSError:
        pass  # not Linux, or not allowed so much: such a run then waits in vain, and another takes its place


def cold(order: Dict[str, Any], pipes: Pipes, close_in_child: List[int], runs_lock: str, hard_limit_s: float) -> int:
    """Fork a supervisor that executes the command; its pid.

    `close_in_child`: the agent's own files, which must not outlive it in a supervisor. `runs_lock`: held by each
    supervisor while it lives, so that the next agent can wait until the last run of the one before it is gone.
    """
    supervisor = os.fork()
    if supervisor:
        return supervisor
    try:
        pipes.own.close()
        for fd in close_in_child:
            os.close(fd)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)  # in place of the channel
        box_lock.share(runs_lock)
        pid = start(order, pipes.given.output, pipes.given.results, pipes.given.stacks)
        guard(pid, pipes.given, hard_limit_s)
    finally:
        os._exit(70)  # only after an exception: the agent sees no report and says so


def guard(pid: int, given: Ends, hard_limit_s: float, is_waiting: bool = False) -> None:
    """In the supervisor: keep only what it needs, and watch over `pid` until all is over. Never returns.

    `is_waiting`: the limit begins when the run is told to go.
    """
    for fd in (given.output, given.results, given.stacks):
        os.close(fd)
    supervise.supervise(pid, given.control, given.status, hard_limit_s, is_waiting)


def start(order: Dict[str, Any], output_fd: int, results_fd: int = -1, stacks_fd: int = -1) -> int:
    """In the supervisor: fork and execute the command. Its pid."""
    os.setsid()
    supervise.become_subreaper()
    pid = os.fork()
    if pid:
        supervise.remember_group(pid)
        return pid
    try:
        results = order.get("results")
        settle(results_fd if results == "stdout" else output_fd, output_fd, order.get("oom_score", TESTS_OOM_SCORE))
        env = dict(order["env"])
        if results == "pipe":
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


def settle(stdout: int, stderr: int, oom_score: int) -> None:
    """In the job's own process: a session of its own, and standard files as a fresh process has them."""
    os.setsid()
    _prefer_for_oom(oom_score)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)


def _prefer_for_oom(score: int) -> None:
    """When memory runs out, the kernel shall take the tests first, then a service, and never the agent."""
    try:
        with open("/proc/self/oom_score_adj", "w") as stream:
            stream.write(str(score))
    except OSError:
        pass  # not Linux, or not allowed: then the kernel chooses
