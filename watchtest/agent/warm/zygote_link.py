"""The agent's side of the process that warm runs are forked from: starts it, asks it, replaces it when it is outdated.

Never waits for it to become ready: until then, and whenever anything about it is in doubt, a run is a cold one.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from ..in_pytest import pytest_command as pytest_job
from ..jobs import job_process as launch
from ..messages import hear, say
from .preloaded_state import Learned
from .prestart import DEEP, EARLY, LATE, Parked, fixed

FORK_LIMIT_S = 2.0
"""One answer of a process that is there. A run may have to ask three before it begins."""
READY_LIMIT_S = 120.0
"""After so long something that it imports hangs."""
STARTS_IN_A_ROW = 8
"""So often a new one is tried with less in it, until it is given up."""
GETTING_READY = "the warm process is getting ready"
SAID_LIMIT = 16 * 1024


class ZygoteLink:
    def __init__(self, home: str, root: str, runs_lock: str) -> None:
        self._home = home
        self._root = root
        self._runs_lock = runs_lock
        self._pid: Optional[int] = None
        self._channel: Optional[socket.socket] = None
        self._key: Optional[str] = None
        """What the living one was started for."""
        self._output: Optional[int] = None
        self._said = b""
        """The end of what the living one, or the last, has printed."""
        self._is_ready = False
        self._began = 0.0
        self._unfit: Dict[str, str] = {}
        """By key: why one cannot be had, with no module left to do without."""
        self._doubts: Dict[str, str] = {}
        """The same, found out by a run: holds until the project has changed in more than its code."""
        self._starts = 0
        """Since the last run that was forked."""
        self._hindrance = ""
        """Why none could be started, the last time that was tried."""
        self._learned = Learned(os.path.join(home, "learned.json"))
        self._parked: Dict[str, Parked] = {}
        self._never: Dict[str, Tuple[Any, ...]] = {}
        """By point: the sessions that cannot wait there, because somebody would notice how they come to it."""

    @property
    def fds(self) -> List[int]:
        channel = [self._channel.fileno()] if self._channel is not None else []
        return channel + ([self._output] if self._output is not None else [])

    # -- having one --------------------------------------------------------------------------------

    def learn(self, order: Dict[str, Any], modules: Optional[Dict[str, Any]]) -> None:
        """What a run had imported that it did not find there."""
        names = modules.get("names") if modules is not None else None
        if isinstance(names, list):
            self._learned.add(order["pytest"]["python"], names)

    def prepare(self, order: Dict[str, Any], close_in_child: List[int]) -> None:
        """Have one for orders like this, made anew if the one there is for others."""
        key = self._key_of(order)
        if key == self._key or key in self._unfit or not sys.platform.startswith("linux"):
            return
        self.close()
        python = order["pytest"]["python"]
        if self._starts >= STARTS_IN_A_ROW:
            if self._learned.is_bare(python):
                self._unfit[key] = "the warm process ended {} times: {}".format(self._starts, self._last_words())
                return
            # With so much to do without, plugins alone are still worth it.
            self._learned.give_up(python)
            self._starts = 0
            key = self._key_of(order)
        try:
            self._start(order, key, close_in_child)
        except OSError as error:  # a full disk, no process to be had: that ends no agent, and may be over soon
            self.close()
            self._hindrance = "the warm process cannot be started: {}".format(error.strerror or error)
            return
        self._hindrance = ""
        self._starts += 1

    def _start(self, order: Dict[str, Any], key: str, close_in_child: List[int]) -> None:
        settings = os.path.join(self._home, "zygote.json")
        with open(settings, "w") as stream:
            json.dump(dict(self._learned.of(order["pytest"]["python"]), root=self._root), stream)
        ours, theirs = socket.socketpair()
        # Its output goes into a pipe, as a run's does: Python asks once, when it starts, what its standard files are.
        self._output, words_child = os.pipe()
        try:
            self._pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            os.close(words_child)
            raise
        if self._pid == 0:
            try:
                for fd in [*close_in_child, ours.fileno(), self._output]:
                    os.close(fd)
                os.set_inheritable(theirs.fileno(), True)
                launch.settle(words_child, words_child, launch.TESTS_OOM_SCORE // 2)
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
                os.chdir(order["cwd"])  # as a run does: Python makes PYTHONPATH absolute once, when it starts
                argv = pytest_job.zygote_argv(order["pytest"]["python"], theirs.fileno(), settings)
                os.execvpe(argv[0], argv, order["env"])
            finally:
                os._exit(127)
        theirs.close()
        os.close(words_child)
        ours.settimeout(FORK_LIMIT_S)
        self._channel, self._key, self._is_ready, self._said = ours, key, False, b""
        self._began = time.monotonic()

    def on_readable(self, fd: int) -> None:
        """Hear whether it is ready, or why it cannot be."""
        if fd == self._output:
            self._said = (self._said + os.read(fd, 64 * 1024))[-SAID_LIMIT:]
            return
        assert self._channel is not None
        try:
            words, _ = hear(self._channel)
        except (EOFError, OSError, ValueError):
            self.close()  # the next `prepare` starts another
            return
        if "ready" in words:
            self._is_ready = True
        else:
            self._make_do_without(words)

    def _make_do_without(self, words: Dict[str, Any]) -> None:
        reason, avoid = str(words.get("unfit")), list(words.get("avoid") or ())
        if avoid:
            self._learned.avoid(avoid)  # the next `prepare` starts another
        else:
            self._unfit[self._key or ""] = reason
        self.close()

    def close(self) -> None:
        for point in list(self._parked):
            self._parked.pop(point).discard()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._output is not None:
            os.close(self._output)
            self._output = None
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = None
        self._is_ready = False
        self._key = None

    # -- asking it ---------------------------------------------------------------------------------

    def fork(self, order: Dict[str, Any], hard_limit_s: float) -> Union[launch.Ends, str]:
        """Have a run begun. Our ends of its pipes; or why it could not be, and nothing has begun."""
        if not sys.platform.startswith("linux"):
            return "forking is only safe on Linux"
        key = self._key_of(order)
        reason = self._unfit.get(key) or self._doubts.get(key)
        if reason:
            return reason
        if key != self._key or not self._is_ready:
            self._give_up_if_late()
            return self._unfit.get(key) or self._hindrance or GETTING_READY
        plugin_order = pytest_job.plugin_order(order)
        for point in (DEEP, LATE, EARLY):
            parked = self._parked.pop(point, None)
            if parked is not None and parked.goes(plugin_order):
                self._starts = 0
                return parked.own
        pipes = launch.Pipes()
        refusal = self._ask(plugin_order, pipes.given.all(), hard_limit_s)
        pipes.given.close()
        if refusal:
            pipes.own.close()
            return refusal
        self._starts = 0
        return pipes.own

    def park(self, order: Dict[str, Any], hard_limit_s: float, awaited: Sequence[str] = ()) -> None:
        """Have the next runs begun ahead of their saves, as far as that can be done unnoticed.

        `awaited`: the files that are likely to be saved next, for tests like those of this order.
        """
        if self._key_of(order) != self._key or not self._is_ready:
            return
        like_this = pytest_job.plugin_order(order)
        of_any = dict(like_this, tests=None, order=[], first=[], collects_all=False)
        for point, plugin_order in ((EARLY, of_any), (LATE, of_any), (DEEP, like_this)):
            for_what = (self._key, *fixed(plugin_order, point), *(awaited if point == DEEP else ()))
            parked = self._parked.get(point)
            if parked is not None and parked.hear_of_its_end():
                if parked.was_noticeable:
                    self._never[point] = parked.for_what
                self._parked.pop(point).discard()
            elif parked is not None and parked.for_what != for_what:
                self._parked.pop(point).discard()
            is_vain = self._never.get(point) == for_what or (point == DEEP and not awaited)
            if point in self._parked or is_vain:
                continue
            if not self._park_at(point, plugin_order, hard_limit_s, for_what, awaited):
                return

    def _park_at(
        self,
        point: str,
        plugin_order: Dict[str, Any],
        hard_limit_s: float,
        for_what: Tuple[Any, ...],
        awaited: Sequence[str],
    ) -> bool:
        pipes = launch.Pipes()
        ours, theirs = socket.socketpair()
        files = [*pipes.given.all(), theirs.fileno()]
        refusal = self._ask(plugin_order, files, hard_limit_s, point, awaited)
        theirs.close()
        pipes.given.close()
        if refusal:
            ours.close()
            pipes.own.close()
            return False
        self._parked[point] = Parked(ours, pipes.own, point, plugin_order, for_what)
        return True

    def _give_up_if_late(self) -> None:
        if self._pid is not None and not self._is_ready and time.monotonic() - self._began > READY_LIMIT_S:
            self._unfit[self._key or ""] = "the warm process was not ready after {:g} s".format(READY_LIMIT_S)
            self.close()

    def doubt(self, order: Dict[str, Any], why: str, avoid: List[Any]) -> None:
        """A run found that it was not what a fresh process would be: the next shall be, or be cold from the start."""
        if not self._learned.avoid(avoid, order["pytest"]["python"]):
            self._doubts[self._key_of(order)] = why

    def forget_guesses(self) -> None:
        """What the project's code looked for ahead of time may be found elsewhere now, or no longer be in the way."""
        self._doubts.clear()
        for point in (LATE, DEEP):
            if point in self._parked:
                self._parked.pop(point).discard()

    def _ask(
        self,
        plugin_order: Dict[str, Any],
        files: List[int],
        hard_limit_s: float,
        point: Optional[str] = None,
        awaited: Sequence[str] = (),
    ) -> str:
        """Why it will not; "" if it has forked a process that has these files."""
        assert self._channel is not None
        request = {"order": plugin_order, "runs_lock": self._runs_lock, "hard_limit_s": hard_limit_s}
        request.update(park=point, awaited=[os.path.join(os.path.realpath(self._root), file) for file in awaited])
        try:
            say(self._channel, request, files)
            words, _ = hear(self._channel)
        except (EOFError, OSError, ValueError) as error:
            self.close()
            return "the warm process did not answer: {}".format(str(error) or self._last_words())
        if words.get("forked") is True:
            return ""
        self.close()
        return "{} has changed since it was preloaded".format(words.get("stale"))

    def _key_of(self, order: Dict[str, Any]) -> str:
        return _frame(order) + json.dumps(self._learned.of(order["pytest"]["python"]), sort_keys=True)

    def _last_words(self) -> str:
        lines = self._said.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:400] if lines else ""


def _frame(order: Dict[str, Any]) -> str:
    """All but the modules that makes one such process different from another."""
    return json.dumps([order["pytest"]["python"], order["cwd"], order["env"]], sort_keys=True)
