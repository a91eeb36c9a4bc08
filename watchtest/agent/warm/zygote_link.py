"""The agent's side of the zygote: starts it, requests runs from it, and replaces it when it is outdated.

Never waits for it to become ready: until then, and whenever anything is in doubt, a run starts cold.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from .. import box_lock
from ..in_pytest import pytest_command
from ..jobs import job_process
from ..messages import receive, send
from .preloaded_state import LearnedModules
from .prestart import ANSWER_LIMIT_S, DEEP, EARLY, LATE, PrestartedRun, fixed_parts

READY_LIMIT_S = 120.0
"""If a warm-up takes longer, one of its imports hangs."""
MAX_STARTS = 8
"""How often a new zygote is tried, each time with fewer modules, before it is given up."""
OUTPUT_LIMIT = 16 * 1024


class ZygoteLink:
    """Keeps a zygote for the latest kind of order, and the prestarted runs that were forked from it."""

    def __init__(self, home: str, root: str, runs_lock: str, key: bytes) -> None:
        self._home = home
        self._root = root
        self._runs_lock = runs_lock
        self._rows_key = key
        self._pid: Optional[int] = None
        self._channel: Optional[socket.socket] = None
        self._key: Optional[str] = None
        """What the living zygote was started for; see `_key_of`."""
        self._output_fd: Optional[int] = None
        self._output = b""
        """The last output of the living zygote, or of the one before."""
        self._is_ready = False
        self._began = 0.0
        self._unfit: Dict[str, str] = {}
        """By key: why no zygote is possible, although there is no module left to avoid."""
        self._mismatches: Dict[str, str] = {}
        """By key: why a run had to be repeated cold. Valid until more than the project's code changes."""
        self._starts = 0
        """The number of starts since the last run that was forked."""
        self._start_error = ""
        """Why the last start failed."""
        self._learned = LearnedModules(os.path.join(home, "learned.json"))
        self._prestarted: Dict[str, PrestartedRun] = {}
        """By waiting point."""
        self._noticeable: Dict[str, Tuple[Any, ...]] = {}
        """By waiting point: the key of a run that cannot reach it without side effects."""

    @property
    def fds(self) -> List[int]:
        channel = [self._channel.fileno()] if self._channel is not None else []
        return channel + ([self._output_fd] if self._output_fd is not None else [])

    # -- starting and ending -----------------------------------------------------------------------

    def learn(self, order: Dict[str, Any], modules: Optional[Dict[str, Any]]) -> None:
        """Remember the modules that a run had to import itself."""
        names = modules.get("names") if modules is not None else None
        if isinstance(names, list):
            self._learned.add(order["pytest"]["python"], names)

    def prepare(self, order: Dict[str, Any], close_in_child: List[int]) -> None:
        """Start a zygote for orders like this one, unless there is one already."""
        key = self._key_of(order)
        if key == self._key or key in self._unfit or not sys.platform.startswith("linux"):
            return
        self.close()
        python = order["pytest"]["python"]
        if self._starts >= MAX_STARTS:
            if self._learned.is_empty(python):
                self._unfit[key] = "the warm process ended {} times: {}".format(self._starts, self._last_line())
                return
            # Too many modules must be avoided; preloading plugins alone is still worth it.
            self._learned.avoid_all(python)
            self._starts = 0
            key = self._key_of(order)
        try:
            self._start(order, key, close_in_child)
        except OSError as error:  # a full disk or no free process, which may be temporary
            self.close()
            self._start_error = "the warm process cannot be started: {}".format(error.strerror or error)
            return
        self._start_error = ""
        self._starts += 1

    def _start(self, order: Dict[str, Any], key: str, close_in_child: List[int]) -> None:
        settings = os.path.join(self._home, "zygote.json")
        with open(settings, "w") as stream:
            json.dump(dict(self._learned.of(order["pytest"]["python"]), root=self._root), stream)
        ours, theirs = socket.socketpair()
        # Its output goes to a pipe like that of a run: Python checks only once, at its start, what its streams are.
        self._output_fd, output_child = os.pipe()
        try:
            self._pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            os.close(output_child)
            raise
        if self._pid == 0:
            try:
                for fd in [*close_in_child, ours.fileno(), self._output_fd]:
                    os.close(fd)
                os.set_inheritable(theirs.fileno(), True)
                job_process.detach(output_child, output_child, job_process.TESTS_OOM_SCORE // 2)
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
                os.chdir(order["cwd"])  # like a run: Python makes PYTHONPATH absolute once, at its start
                argv = pytest_command.zygote_argv(order["pytest"]["python"], theirs.fileno(), settings)
                os.execvpe(argv[0], argv, order["env"])
            finally:
                os._exit(127)
        theirs.close()
        os.close(output_child)
        ours.settimeout(ANSWER_LIMIT_S)
        self._channel, self._key, self._is_ready, self._output = ours, key, False, b""
        self._began = time.monotonic()

    def on_readable(self, fd: int) -> None:
        """Read its output, or its message that it is ready or unfit."""
        if fd == self._output_fd:
            self._output = (self._output + os.read(fd, 64 * 1024))[-OUTPUT_LIMIT:]
            return
        assert self._channel is not None
        try:
            message, _ = receive(self._channel)
        except (EOFError, OSError, ValueError):
            self.close()  # the next `prepare` starts another
            return
        if "ready" in message:
            self._is_ready = True
            return
        avoid = list(message.get("avoid") or ())
        if avoid:
            self._learned.avoid(avoid)  # the next `prepare` starts another
        else:
            self._unfit[self._key or ""] = str(message.get("unfit"))
        self.close()

    def close(self) -> None:
        for point in list(self._prestarted):
            self._prestarted.pop(point).discard()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._output_fd is not None:
            os.close(self._output_fd)
            self._output_fd = None
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = None
        self._is_ready = False
        self._key = None

    # -- runs --------------------------------------------------------------------------------------

    def fork(self, order: Dict[str, Any], hard_limit_s: float) -> Union[job_process.PipeEnds, str]:
        """Start a warm run; return our ends of its pipes, or why it could not be started."""
        if not sys.platform.startswith("linux"):
            return "forking is only safe on Linux"
        key = self._key_of(order)
        reason = self._unfit.get(key) or self._mismatches.get(key)
        if reason:
            return reason
        if key != self._key or not self._is_ready:
            if self._pid is not None and not self._is_ready and time.monotonic() - self._began > READY_LIMIT_S:
                self._unfit[self._key or ""] = "the warm process was not ready after {:g} s".format(READY_LIMIT_S)
                self.close()
            return self._unfit.get(key) or self._start_error or pytest_command.WARM_NOT_READY
        plugin_order = order["pytest"]
        for point in (DEEP, LATE, EARLY):
            prestarted = self._prestarted.pop(point, None)
            if prestarted is not None and prestarted.go(plugin_order):
                self._starts = 0
                return prestarted.ends
        ends = self._request(plugin_order, hard_limit_s, waiting={})
        if not isinstance(ends, str):
            self._starts = 0
        return ends

    def prestart(self, order: Dict[str, Any], hard_limit_s: float, expected: Sequence[str] = ()) -> None:
        """Start the next runs ahead of time, as far as that has no side effects.

        `expected`: the files that are likely to change next, for tests like those of this order.
        """
        if self._key_of(order) != self._key or not self._is_ready:
            return
        root = os.path.realpath(self._root)
        same_tests = order["pytest"]
        any_tests = dict(same_tests, tests=None, order=[], first=[], collects_all=False)
        for point, plugin_order in ((EARLY, any_tests), (LATE, any_tests), (DEEP, same_tests)):
            key = (self._key, *fixed_parts(plugin_order, point), *(expected if point == DEEP else ()))
            prestarted = self._prestarted.get(point)
            if prestarted is not None and (prestarted.has_ended() or prestarted.key != key):
                if prestarted.was_noticeable:
                    self._noticeable[point] = prestarted.key
                self._prestarted.pop(point).discard()
            is_futile = self._noticeable.get(point) == key or (point == DEEP and not expected)
            if point in self._prestarted or is_futile:
                continue
            ours, theirs = socket.socketpair()
            with theirs:
                waiting = {"point": point, "expected": [os.path.join(root, file) for file in expected]}
                ends = self._request(plugin_order, hard_limit_s, waiting, [theirs.fileno()])
            if isinstance(ends, str):
                ours.close()
                return
            self._prestarted[point] = PrestartedRun(ours, ends, point, plugin_order, key)

    def note_mismatch(self, order: Dict[str, Any], why: str, avoid: List[Any]) -> None:
        """A run differed from a fresh process: avoid the modules that caused it, or start such runs cold."""
        if not self._learned.avoid(avoid, order["pytest"]["python"]):
            self._mismatches[self._key_of(order)] = why

    def discard_guesses(self) -> None:
        """Discard what was concluded or prestarted before this change: lookups of the project may end differently."""
        self._mismatches.clear()
        for point in (LATE, DEEP):
            if point in self._prestarted:
                self._prestarted.pop(point).discard()

    def _request(
        self, plugin_order: Dict[str, Any], hard_limit_s: float, waiting: Dict[str, Any], files: Sequence[int] = ()
    ) -> Union[job_process.PipeEnds, str]:
        """Have the zygote fork a run; return our ends of its pipes, or why it did not.

        `waiting`: what a prestarted run has to know; `files`: what it gets besides the pipes.
        """
        assert self._channel is not None
        assert self._pid is not None
        box_lock.send_signal(self._pid, signal.SIGCONT)  # a test may have stopped it
        request = dict(waiting, order=plugin_order, runs_lock=self._runs_lock, hard_limit_s=hard_limit_s)
        request["key"] = self._rows_key.hex()
        pipes = job_process.JobPipes()
        try:
            send(self._channel, request, [*pipes.job_ends, *files])
            message, _ = receive(self._channel)
            if message.get("forked") is True:
                return pipes.agent_ends
            refusal = "{} has changed since it was preloaded".format(message.get("stale"))
        except (EOFError, OSError, ValueError) as error:
            refusal = "the warm process did not answer: {}".format(str(error) or self._last_line())
        finally:
            pipes.job_ends.close()
        pipes.agent_ends.close()
        self.close()
        return refusal

    def _key_of(self, order: Dict[str, Any]) -> str:
        """Return all that makes one zygote different from another: interpreter, folder, environment and modules."""
        python = order["pytest"]["python"]
        return json.dumps([python, order["cwd"], order["env"], self._learned.of(python)], sort_keys=True)

    def _last_line(self) -> str:
        lines = self._output.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:400] if lines else ""
