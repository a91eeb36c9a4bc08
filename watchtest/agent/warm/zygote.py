"""The process that warm runs are forked from. Lives in the tests' own Python; never imports anything of the project.

It warms up once, says what it holds, and then forks a supervised pytest for each request. What it holds must be on disk
as it was when it was imported: that is checked for every request, and a zygote that finds a change has had its time.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import time
import traceback
from typing import Any, Dict, List, NoReturn

from .. import box_lock
from ..jobs import job_process as launch
from ..jobs import supervisor as supervise
from ..messages import hear, say
from ..module_origins import know_folders
from .preloaded_state import Held
from .prestart import Gate
from .warmup import Unfit, warm_up


def main(channel_fd: int, settings_file: str) -> NoReturn:
    """Warm up and serve on that socket until it ends."""
    with open(settings_file) as stream:
        settings = json.load(stream)
    os.set_inheritable(channel_fd, False)
    channel = socket.socket(fileno=channel_fd)
    began = time.monotonic()
    try:
        held = warm_up(settings)
    except Unfit as unfit:
        say(channel, {"unfit": unfit.reason, "avoid": sorted(unfit.avoid)})
        supervise.sweep()  # what a module may have started
        os._exit(0)
    know_folders()
    gc.collect()
    gc.freeze()
    say(channel, {"ready": len(held.modules), "took_s": round(time.monotonic() - began, 3)})
    try:
        while True:
            request, fds = hear(channel)
            _answer(channel, request, fds, held)
    except EOFError:
        os._exit(0)  # the agent is gone
    except BaseException:  # noqa: BLE001  for the log; the agent sees the end
        traceback.print_exc()
    finally:
        os._exit(1)


def _answer(channel: socket.socket, request: Dict[str, Any], fds: List[int], held: Held) -> None:
    """`fds`: the ends of the run's pipes, and for one that shall wait the socket that its order comes by."""
    given, waiting = launch.Ends(*fds[: len(launch.NAMES)]), fds[len(launch.NAMES) :]
    _reap()
    changed = held.first_change()
    if changed:
        say(channel, {"stale": changed})
        os._exit(0)
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork() == 0:
        try:
            channel.close()
            _supervise(request, given, waiting, held)
        finally:
            os._exit(70)  # only after an exception: the agent sees no report and says so
    for fd in fds:
        os.close(fd)
    say(channel, {"forked": True})


def _supervise(request: Dict[str, Any], given: launch.Ends, waiting: List[int], held: Held) -> None:
    os.setsid()
    supervise.become_subreaper()
    lock = box_lock.share(request["runs_lock"])
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            for fd in (lock, given.control, given.status):
                os.close(fd)
            launch.settle(given.output, given.output, launch.TESTS_OOM_SCORE)
            os.close(given.output)
            code = _run(request, given, waiting, held)
        except BaseException:  # noqa: BLE001  as the interpreter itself would say it
            traceback.print_exc()
        finally:
            os._exit(code)
    supervise.remember_group(pid)
    for fd in waiting:
        os.close(fd)
    launch.guard(pid, given, request["hard_limit_s"], is_waiting=bool(waiting))


def _run(request: Dict[str, Any], given: launch.Ends, waiting: List[int], held: Held) -> int:
    """In the forked process: pytest on the project as it is now. The exit code."""
    from ..in_pytest import pytest_plugin  # imports pytest: not before the warm-up has decided how

    order = request["order"]
    os.chdir(order["folder"])
    held.freshen(os.getcwd())
    try:
        point, awaited = request["park"], request["awaited"]
        gate = Gate(waiting[0], point, os.getcwd(), order["args"], held, awaited) if waiting else None
        code = int(pytest_plugin.run(order, given.results, given.stacks, held, gate))
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    _leave_as_python_does()
    return code


def _leave_as_python_does() -> None:
    """What the end of an interpreter does that a project may count on: threads are joined, exit handlers run."""
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    try:
        atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001  told already; before Python 3.10 the last one is raised again, for callers
        pass
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # closed or replaced by a test


def _reap() -> None:
    """Supervisors that have ended; the agent knows that by their pipes."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
