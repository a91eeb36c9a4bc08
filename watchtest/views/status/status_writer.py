"""Keeps `.watchtest/status.json` and the files beside it true. Readers never see half a file; it is never deleted.

    status.json   the document     at once on a change of verdict, activity or problem, else four times a second at most
    heartbeat     touched every `heartbeat_s`
    locations     `path:line:col: message` a failure of the top lane, at each verdict
    .gitignore    `*`

What cannot be written is reported once and tried again: a full disk must not end the watcher.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from watchtest.core.state import State
from watchtest.core.step import leave
from watchtest.errors import WatchtestError
from watchtest.views.status.status_document import Document, WriterInfo, activity, document, locations
from watchtest.workspace.folder import make_folder, replace_file

__all__ = ["StatusFile", "WriterInfo", "document", "writer_of_this_process"]

INTERVAL_S = 0.25


class StatusFile:
    """The one writer of a workspace's status: `show` each state, `tick` about four times a second."""

    def __init__(
        self,
        folder: Path,
        writer: WriterInfo,
        *,
        on_problem: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        flaky: Callable[[], frozenset[str] | None] = lambda: None,
    ) -> None:
        """`flaky`: the tests that are known to pass and fail by chance; None: nobody knows."""
        self.folder = folder
        self._flaky = flaky
        self._told_flaky: frozenset[str] | None = None
        self._writer = writer
        self._on_problem = on_problem
        self._clock = clock
        self._seq = 0
        self._state: State | None = None
        self._is_due = False
        self._written_at = float("-inf")
        self._beaten_at = float("-inf")
        self._told_locations: str | None = None
        self._reported: set[str] = set()

    def __enter__(self) -> Self:
        self._seq = _last_seq(self.folder / "status.json")
        self._try(self._make_folder)
        self.tick(self._clock())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        has_crashed = isinstance(error, Exception) and not isinstance(error, WatchtestError)
        if self._state is not None and not has_crashed:
            # After a crash the file keeps its last word: with the lock gone, readers see that the watcher died.
            self._state = leave(self._state)
            self._write(self._clock())

    def show(self, state: State, now: float) -> None:
        """Write `state` now if it says something new, soon otherwise."""
        if state is self._state:
            return
        before, self._state, self._is_due = self._state, state, True
        if before is None or _essence(before) != _essence(state):
            self._write(now)
        else:
            self.tick(now)

    def tick(self, now: float) -> None:
        """Write what waits, and show that the watcher lives."""
        self._is_due = self._is_due or self._flaky() != self._told_flaky
        # Both differences are also due when the clock was set back.
        if self._is_due and not 0 <= now - self._written_at < INTERVAL_S:
            self._write(now)
        if not 0 <= now - self._beaten_at < self._writer.heartbeat_s:
            self._beaten_at = now  # also when it fails: not more often than this
            self._try(lambda: self._beat(now))

    @property
    def started_at(self) -> float:
        return self._writer.started_at

    def document(self, state: State) -> Document:
        """What the file says of `state`, or will in a moment, for those who ask in person."""
        now = self._clock()
        self.show(state, now)
        if self._is_due:
            self._seq += 1  # no two documents that differ have the same number
        return document(state, seq=self._seq, now=now, writer=self._writer, flaky=self._flaky())

    def _write(self, now: float) -> None:
        if self._state is None:
            return
        self._written_at = now
        self._is_due = not self._try(self._replace_files)

    def _replace_files(self) -> None:
        state = self._state
        assert state is not None
        self._make_folder()
        flaky = self._flaky()
        whole = document(state, seq=self._seq + 1, now=self._written_at, writer=self._writer, flaky=flaky)
        said = locations(state.top)
        if said != self._told_locations:
            # Before the status: whoever reads a verdict there finds its places here.
            replace_file(self.folder / "locations", said.encode("utf-8", "replace"))
            self._told_locations = said
        replace_file(self.folder / "status.json", json.dumps(whole, indent=1).encode())
        self._seq += 1
        self._told_flaky = flaky

    def _make_folder(self) -> None:
        make_folder(self.folder)
        if not os.path.lexists(self.folder / "heartbeat"):
            # The folder is new, or was swept clean: all that lies beside the status has to be written again, now.
            self._told_locations = None
            self._beat(self._clock())

    def _beat(self, now: float) -> None:
        path = self.folder / "heartbeat"
        try:
            os.utime(path, (now, now))
        except FileNotFoundError:
            make_folder(self.folder)
            replace_file(path, b"")
            os.utime(path, (now, now))
        self._beaten_at = now

    def _try(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except OSError as error:
            where = error.filename or self.folder
            text = f"cannot write the status file: {where}: {error.strerror or error}; trying again"
            if text not in self._reported:
                self._reported.add(text)
                self._on_problem(text)
            return False
        return True


def writer_of_this_process(version: str) -> WriterInfo:
    """This process, as precisely as its system tells."""
    return WriterInfo(
        pid=os.getpid(),
        host=platform.node(),
        version=version,
        started_at=time.time(),
        pid_start=_pid_start(_content(Path("/proc/self/stat"))),
        boot_id=_content(Path("/proc/sys/kernel/random/boot_id")).strip() or None,
    )


def _pid_start(stat: str) -> int | None:
    # The name of the process stands in brackets and may hold blanks and brackets; the start time is field 22.
    fields = stat.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 else None


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux, or no /proc: the document says null
        return ""


def _last_seq(path: Path) -> int:
    try:
        seq = json.loads(path.read_bytes())["seq"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):  # no file of ours yet: counting starts
        return 0
    return seq if isinstance(seq, int) and seq > 0 else 0


def _essence(state: State) -> tuple[object, ...]:
    """What a reader must hear of at once."""
    return tuple(
        (lane.lane, activity(lane), lane.knowledge.verdict, lane.knowledge.at, lane.problem, lane.box.services)
        for lane in state.lanes.values()
    )
