"""Starts the agent's one job at a time, warm or cold, follows it to its end, and prestarts the next one."""

from __future__ import annotations

import os
import selectors
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Set

from .. import FOLDER, box_lock, running_test
from ..agent_error import AgentError, error_code, full_disk
from ..frames import BODY_PIECE, Header
from ..in_pytest import pytest_command
from ..in_unittest import unittest_main
from ..owned_paths import LEDGER
from ..rows import KEY_SIZE, BareRow, RowKind, encode_row
from ..vital_files import VitalFiles, files_below
from ..warm.zygote_link import ZygoteLink
from . import job_process
from .disk_watch import DiskWatch
from .job import RunningJob, complete
from .job_limits import hard_limit_s

REPORT_LIMIT = 64 * 1024 * 1024
MAX_EXPECTED = 3
"""After a change of more files than this, the next change is likely to be elsewhere."""


class JobControl:
    """`own_fds` returns the agent's files, which no child process may inherit."""

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
        self._job: Optional[RunningJob] = None
        self._last_warm_order: Optional[Dict[str, Any]] = None
        self._written: Set[str] = set()
        """The files that were written since the last job began."""
        self._expected_changes: List[str] = []
        """The files that were changed before the last job, and so are likely to change again."""
        self.lock_file = os.path.join(home, "runs.lock")
        self.running_test_file = os.path.join(home, "running-test")
        own_files = [os.path.join(home, name) for name in (LEDGER, "remembered.json", "venv/pyvenv.cfg")]
        self._vital_files = VitalFiles([*own_files, *files_below(FOLDER)])
        self._key = os.urandom(KEY_SIZE)
        """Signs the rows of our plugins. Never in an argument, a variable or a file."""
        self._zygote = ZygoteLink(home, root, self.lock_file, self._key)

    @property
    def is_busy(self) -> bool:
        return self._job is not None

    def start(self, job_id: int, order: Dict[str, Any]) -> None:
        if self._job is not None:
            raise AgentError("busy", "a job is running already")
        self._restore_temporary_folder()
        order = complete(order, box_lock.JOB_VARIABLE, self._home, self._root)
        if "pytest" in order:
            more = {"root": self._root, "folder": order["cwd"], "running_test": self.running_test_file}
            order.update(results="pipe", pytest=dict(order["pytest"], **more))
        if "unittest" in order:
            unittest_main.complete(order, self._home, self.running_test_file)
        if order.get("report"):
            self._give_report_file(order)
        if self._written:
            self._expected_changes = sorted(self._written) if len(self._written) <= MAX_EXPECTED else []
            self._written.clear()
        self._vital_files.begin()
        if order.get("results") == "pipe":
            running_test.prepare(self.running_test_file)
        self._launch(job_id, order, is_warm="pytest" in order and bool(order["pytest"]["is_warm"]))
        self._send({"t": "started", "id": job_id})

    def stop(self, header: Header, body: bytes) -> None:
        # The job may have ended while the stop was on its way.
        if self._job is not None and self._job.job_id == header["id"]:
            self._job.stop(bool(header["kill"]))

    def tick(self) -> None:
        """Check the limits of the job, and whether it has ended."""
        if self._job is None:
            return
        if self._job.is_over:
            self._finish(self._job)
        else:
            self._job.tick()

    def note_change(self, path: str) -> None:
        """Note that a file of the tree is written."""
        if path.endswith(".py") and not path.endswith("conftest.py"):
            self._written.add(path)
        else:
            self.discard_guesses()  # a prestarted run may have looked at its size or date, which we cannot see

    def discard_guesses(self) -> None:
        self._zygote.discard_guesses()

    def close(self) -> None:
        if self._job is not None:
            self._job.stop(is_kill=True)
        self._zygote.close()

    # -- starting ----------------------------------------------------------------------------------

    @staticmethod
    def _restore_temporary_folder() -> None:
        """Create /tmp again if a test has removed it."""
        if not os.path.isdir("/tmp"):
            os.mkdir("/tmp")
            os.chmod("/tmp", 0o1777)

    def _give_report_file(self, order: Dict[str, Any]) -> None:
        file = os.path.join(self._home, "report")
        if os.path.lexists(file):
            os.unlink(file)
        order["argv"] = [word.replace(order["report"], file) for word in order["argv"]]
        order["report"] = file

    def _launch(self, job_id: int, order: Dict[str, Any], is_warm: bool, cold_because: str = "") -> None:
        limit_s = hard_limit_s(order["limit_s"], order["grace_s"])
        ends: Optional[job_process.PipeEnds] = None
        supervisor_pid: Optional[int] = None
        if is_warm:
            with self._zygote_reregistered():
                forked = self._zygote.fork(order, limit_s)
            if isinstance(forked, str):
                cold_because = forked
            else:
                ends = forked
        if ends is None:
            if "pytest" in order:
                order["argv"] = pytest_command.cold_argv(order["pytest"], self._home)
            pipes = job_process.JobPipes()
            unwanted = [*self._own_fds(), *self._zygote.fds]
            supervisor_pid = job_process.start_cold(order, pipes, unwanted, self.lock_file, limit_s, self._key)
            pipes.job_ends.close()
            ends = pipes.agent_ends
        disks = DiskWatch(self._root, [self._home, "/tmp"])
        self._job = RunningJob(
            job_id, order, self._send, self._selector, ends, supervisor_pid, disks, self._key, cold_because
        )

    # -- ending ------------------------------------------------------------------------------------

    def _finish(self, job: RunningJob) -> None:
        self._job = None
        end = job.finish()
        if end.pop("is_orphaned"):
            box_lock.kill_marked(box_lock.JOB_VARIABLE, self._home)
        if job.wants_cold:
            self._zygote.note_mismatch(job.order, job.wants_cold, job.avoid)
        if job.wants_cold and not job.has_been_stopped:
            self._send({"t": "results", "id": job.job_id}, encode_row(BareRow(k=RowKind.RESTART)))
            try:
                self._launch(job.job_id, job.order, is_warm=False, cold_because=job.wants_cold)
            except OSError as error:  # such as a full disk: the order of a cold run is a file
                message = "the run cannot be repeated in a fresh process: {}".format(error)
                self._send({"t": "failed", "id": job.job_id, "code": error_code(error, "box"), "message": message})
            return
        if job.order.get("results") == "pipe":
            running_test.remove(self.running_test_file)
        self._vital_files.note_loaded(job.vital_files)
        # Only tests: a setup may change whatever it likes.
        if job.order.get("results") == "pipe":
            end["damage"] = end["damage"] or self._vital_files.first_change()
        end["full_disk"] = full_disk(self._root, self._home, "/tmp")
        end["has_report"] = self._send_report(job)
        self._send(dict(end, t="ended", id=job.job_id))
        if "pytest" in job.order and job.order["pytest"]["is_warm"]:
            self._zygote.learn(job.order, job.modules)
            self._warm_up(job.order)

    def _send_report(self, job: RunningJob) -> bool:
        """Send the report file that the command wrote; return False if there is none, or it is too large."""
        try:
            with open(job.order.get("report") or "", "rb") as stream:
                if os.fstat(stream.fileno()).st_size > REPORT_LIMIT:
                    return False
                for piece in iter(lambda: stream.read(BODY_PIECE), b""):
                    self._send({"t": "report", "id": job.job_id}, piece)
        except OSError:
            return False
        return True

    # -- warm runs ---------------------------------------------------------------------------------

    def _warm_up(self, order: Dict[str, Any]) -> None:
        """Prepare the next warm run."""
        self._last_warm_order = order
        with self._zygote_reregistered():
            self._zygote.prepare(order, self._own_fds())
            limit_s = hard_limit_s(order["limit_s"], order["grace_s"])
            self._zygote.prestart(order, limit_s, self._expected_changes)

    def _on_zygote_readable(self, fd: int) -> None:
        with self._zygote_reregistered():
            self._zygote.on_readable(fd)
        if self._job is None and self._last_warm_order is not None:
            self._warm_up(self._last_warm_order)  # prestart the next runs; or replace a zygote that was unfit

    @contextmanager
    def _zygote_reregistered(self) -> Iterator[None]:
        """Update the selector after a block that may replace the zygote."""
        for fd in self._zygote.fds:
            self._selector.unregister(fd)
        try:
            yield
        finally:
            for fd in self._zygote.fds:
                self._selector.register(fd, selectors.EVENT_READ, self._on_zygote_readable)
