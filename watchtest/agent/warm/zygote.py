"""The process that warm runs are forked from. It runs in the tests' own Python and never imports the project.

It warms up once and then forks a supervised pytest for each request. Before each fork it checks that the files it has
imported are unchanged; a zygote that finds a change exits.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import traceback
from typing import Any, Dict, List, NoReturn

from .. import box_lock, rows
from ..jobs import job_process, supervisor
from ..messages import receive, send
from ..module_origins import cache_folders
from .preloaded_state import PreloadedState
from .prestart import Gate
from .warmup import UnfitProcess, warm_up


def main(channel_fd: int, settings_file: str) -> NoReturn:
    """Warm up and serve requests on this socket until it is closed."""
    with open(settings_file) as stream:
        settings = json.load(stream)
    os.set_inheritable(channel_fd, False)
    channel = socket.socket(fileno=channel_fd)
    try:
        preloaded = warm_up(settings)
    except UnfitProcess as unfit:
        send(channel, {"unfit": str(unfit), "avoid": sorted(unfit.avoid)})
        supervisor.kill_descendants()  # a module may have started some
        os._exit(0)
    cache_folders()
    gc.collect()
    gc.freeze()
    send(channel, {"ready": True})
    try:
        while True:
            request, fds = receive(channel)
            _answer(channel, request, fds, preloaded)
    except EOFError:
        os._exit(0)  # the agent is gone
    except BaseException:  # noqa: BLE001  log it; the agent sees that the process ended
        traceback.print_exc()
    finally:
        os._exit(1)


def _answer(channel: socket.socket, request: Dict[str, Any], fds: List[int], preloaded: PreloadedState) -> None:
    """Fork a run. `fds`: the run's ends of its pipes, and for a prestarted run the socket for its order."""
    pipes = len(job_process.PipeEnds._fields)
    ends, gate_fds = job_process.PipeEnds(*fds[:pipes]), fds[pipes:]
    supervisor.reap()
    changed = preloaded.first_change()
    if changed:
        send(channel, {"stale": changed})
        os._exit(0)
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork() == 0:
        try:
            channel.close()
            _supervise(request, ends, gate_fds, preloaded)
        finally:
            os._exit(70)  # only after an exception: the agent notices the missing report
    for fd in fds:
        os.close(fd)
    send(channel, {"forked": True})


def _supervise(
    request: Dict[str, Any], ends: job_process.PipeEnds, gate_fds: List[int], preloaded: PreloadedState
) -> None:
    os.setsid()
    supervisor.become_subreaper()
    lock = box_lock.hold_shared(request["runs_lock"])
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            for fd in (lock, ends.control, ends.status):
                os.close(fd)
            job_process.detach(ends.output, ends.output, job_process.TESTS_OOM_SCORE)
            os.close(ends.output)
            code = _run(request, ends, gate_fds, preloaded)
        except BaseException:  # noqa: BLE001  print it as the interpreter itself would
            traceback.print_exc()
        finally:
            os._exit(code)
    supervisor.remember_group(pid)
    for fd in gate_fds:
        os.close(fd)
    job_process.supervise(pid, ends, request["hard_limit_s"], is_waiting=bool(gate_fds))


def _run(request: Dict[str, Any], ends: job_process.PipeEnds, gate_fds: List[int], preloaded: PreloadedState) -> int:
    """In the forked process: run pytest on the project as it is now; return the exit code."""
    from ..in_pytest import pytest_plugin  # imports pytest, which the warm-up has to do first

    order = request["order"]
    os.chdir(order["folder"])
    preloaded.freshen(os.getcwd())
    try:
        gate = None
        if gate_fds:
            gate = Gate(gate_fds[0], request["point"], os.getcwd(), order["args"], preloaded, request["expected"])
        key = bytes.fromhex(request.pop("key"))
        code = int(
            pytest_plugin.run(
                order, rows.RowWriter(ends.results, order["running_test"], key), ends.stacks, preloaded, gate
            )
        )
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    _finalize()
    return code


def _finalize() -> None:
    """Do what an interpreter does at its end and a project may rely on: join threads, run exit handlers."""
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    try:
        atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001  already printed; before Python 3.10 the last error is raised again
        pass
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # closed or replaced by a test
