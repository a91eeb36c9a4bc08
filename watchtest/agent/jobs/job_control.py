"""The agent's one job at a time: starts it warm or cold, follows it to its end, and has the next one begun ahead."""

from __future__ import annotations

import os
import selectors
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Set

from .. import box_lock
from ..frames import BODY_PIECE, Header, MirrorError, full_disk
from ..in_pytest import pytest_command as pytest_job
from ..in_unittest import unittest_main as unittest_job
from ..warm.zygote_link import ZygoteLink
from . import job_process as launch
from .job import HARD_SLACK_S, Job, complete

REPORT_LIMIT = 64 * 1024 * 1024
MOST_AWAITED = 3
"""Who changes more files at once does something else next."""


class Jobs:
    """`own_fds`: the agent's files, which no process that is started here may keep."""

    def __init__(
        self,
        home: str,
        root: str,
        selector: selectors.BaseSelector,
        send: Callable[..., None],
        own_fds: Callable[[], List[int]],
    ) -> None:
        self._home = home
        self._root = root
        self._selector = selector
        self._send = send
        self._own_fds = own_fds
        self._job: Optional[Job] = None
        self._last_warm: Optional[Dict[str, Any]] = None
        self._written: Set[str] = set()
        """Since the last job began."""
        self._awaited: List[str] = []
        """What was changed before it, and so is likely to be changed again."""
        self.lock_file = os.path.join(home, "runs.lock")
        self._zygote = ZygoteLink(home, root, self.lock_file)

    @property
    def is_busy(self) -> bool:
        return self._job is not None

    def start(self, identity: int, order: Dict[str, Any]) -> None:
        if self._job is not None:
            raise MirrorError("busy", "a job is running already")
        order = complete(order, box_lock.JOB, self._home, self._root)
        if "pytest" in order:
            pytest_job.complete(order, self._home)
        if "unittest" in order:
            unittest_job.complete(order, self._home)
        if order.get("report"):
            self._give_report_file(order)
        if self._written:
            self._awaited = sorted(self._written) if len(self._written) <= MOST_AWAITED else []
            self._written.clear()
        self._launch(identity, order, is_warm="pytest" in order and bool(order["pytest"]["is_warm"]))
        self._send({"t": "started", "id": identity})

    def stop(self, header: Header, body: bytes) -> None:
        # A stop that crosses the job's own end on the wire has nothing left to do.
        if self._job is not None and self._job.identity == header["id"]:
            self._job.stop(bool(header["kill"]))

    def heard(self, fd: int) -> bool:
        """Whether that was one of ours; it has been read then."""
        if fd in self._zygote.fds:
            self._hear_zygote(fd)
        elif self._job is not None and fd in self._job.fds:
            if not self._job.on_readable(fd):
                self._drop(self._job, fd)
        else:
            return False
        return True

    def tend(self) -> None:
        """After each look around: limits, and the end."""
        job = self._job
        if job is None:
            return
        if job.is_over:
            self._finish(job)
            return
        job.tick()
        for fd in job.forsaken():
            self._drop(job, fd)

    def note_change(self, path: str) -> None:
        """A file of the tree is written."""
        if path.endswith(".py") and not path.endswith("conftest.py"):
            self._written.add(path)
        else:
            self.forget_guesses()  # nobody sees who asked for a file's size or date

    def forget_guesses(self) -> None:
        self._zygote.forget_guesses()

    def close(self) -> None:
        if self._job is not None:
            self._job.stop(is_kill=True)
        self._zygote.close()

    # -- starting ----------------------------------------------------------------------------------

    def _give_report_file(self, order: Dict[str, Any]) -> None:
        file = os.path.join(self._home, "report")
        if os.path.lexists(file):
            os.unlink(file)
        order["argv"] = [word.replace(order["report"], file) for word in order["argv"]]
        order["report"] = file

    def _launch(self, identity: int, order: Dict[str, Any], is_warm: bool, cold_because: str = "") -> None:
        limit_s = _hard_limit_s(order)
        own: Optional[launch.Ends] = None
        supervisor: Optional[int] = None
        if is_warm:
            with self._zygote_heard():
                forked = self._zygote.fork(order, limit_s)
            if isinstance(forked, str):
                cold_because = forked
            else:
                own = forked
        if own is None:
            pipes = launch.Pipes()
            supervisor = launch.cold(order, pipes, [*self._own_fds(), *self._zygote.fds], self.lock_file, limit_s)
            pipes.given.close()
            own = pipes.own
        self._job = Job(identity, order, self._send, own, supervisor, cold_because)
        for fd in self._job.fds:
            self._selector.register(fd, selectors.EVENT_READ)

    # -- ending ------------------------------------------------------------------------------------

    def _drop(self, job: Job, fd: int) -> None:
        self._selector.unregister(fd)
        job.drop(fd)

    def _finish(self, job: Job) -> None:
        self._job = None
        end = job.finish()
        if end.pop("is_orphaned"):
            box_lock.end_marked(box_lock.JOB, self._home)
        if job.wants_cold:
            self._zygote.doubt(job.order, job.wants_cold, job.avoid)
        if job.wants_cold and not job.has_been_stopped:
            self._send({"t": "results", "id": job.identity}, b'{"k":"restart"}\n')
            self._launch(job.identity, job.order, is_warm=False, cold_because=job.wants_cold)
            return
        end["full_disk"] = full_disk(self._root, self._home, "/tmp")
        end["has_report"] = self._send_report(job)
        self._send(dict(end, t="ended", id=job.identity))
        if "pytest" in job.order and job.order["pytest"]["is_warm"]:
            self._zygote.learn(job.order, job.modules)
            self._warm_up(job.order)

    def _send_report(self, job: Job) -> bool:
        """What the command wrote for us; nothing if there is no such file, or far too much in it."""
        try:
            with open(job.order.get("report") or "", "rb") as stream:
                if os.fstat(stream.fileno()).st_size > REPORT_LIMIT:
                    return False
                for piece in iter(lambda: stream.read(BODY_PIECE), b""):
                    self._send({"t": "report", "id": job.identity}, piece)
        except OSError:
            return False
        return True

    # -- ahead of time -----------------------------------------------------------------------------

    def _warm_up(self, order: Dict[str, Any]) -> None:
        """For the next run, while nobody waits."""
        self._last_warm = order
        with self._zygote_heard():
            self._zygote.prepare(order, self._own_fds())
            self._zygote.park(order, _hard_limit_s(order), self._awaited)

    def _hear_zygote(self, fd: int) -> None:
        with self._zygote_heard():
            self._zygote.on_readable(fd)
        if self._job is None and self._last_warm is not None:
            self._warm_up(self._last_warm)  # begin the next runs; or, if it was unfit, with less in it

    @contextmanager
    def _zygote_heard(self) -> Iterator[None]:
        """Whatever is done about it, the selector listens to the one that is there afterwards."""
        for fd in self._zygote.fds:
            self._selector.unregister(fd)
        try:
            yield
        finally:
            for fd in self._zygote.fds:
                self._selector.register(fd, selectors.EVENT_READ)


def _hard_limit_s(order: Dict[str, Any]) -> float:
    return float(order["limit_s"]) + 3 * float(order["grace_s"]) + HARD_SLACK_S
