"""Writes `.watchtest/status.json` and the files beside it. Readers always see a complete file; it is never deleted.

    status.json   at once on a change of verdict, activity or problem, otherwise at most four times a second
    heartbeat     touched every `heartbeat_s`
    locations     one line `path:line:col: message` per failure of the top lane, at each verdict
    .gitignore    `*`

A write that fails is reported once and tried again: a full disk must not end the watcher.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from watchtest.core.state import State
from watchtest.core.step import leave
from watchtest.errors import WatchtestError, WorkspaceError
from watchtest.views.mood import mood
from watchtest.views.status.status_document import Document, WriterInfo, activity, document, locations
from watchtest.views.status.stop_record import write_record
from watchtest.workspace.folder import OwnFolder

INTERVAL_S = 0.25


class StatusFile:
    """The only writer of a workspace's status: call `show` for each state, `tick` about four times a second."""

    def __init__(
        self,
        folder: Path,
        writer: WriterInfo,
        *,
        on_problem: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        flaky: Callable[[], frozenset[str] | None] = lambda: None,
        stop_record: Path | None = None,
    ) -> None:
        """`flaky` returns the tests that are known to be flaky, or None without a history.

        `stop_record` is the file outside of the workspace that vouches for the status once the watcher has stopped.
        """
        self._stop_record = stop_record
        self._folder = OwnFolder(folder)
        self._flaky = flaky
        self._written_flaky: frozenset[str] | None = None
        self.writer = writer
        self._on_problem = on_problem
        self._clock = clock
        self._seq = 0
        self._state: State | None = None
        self._is_due = False
        self._written: Document = {}
        self._written_at = float("-inf")
        self._heartbeat_at = float("-inf")
        self._written_locations: str | None = None
        self._reported: set[str] = set()

    def __enter__(self) -> Self:
        self._seq = _last_seq(self._folder)
        self._try(self._make_folder)
        self.tick(self._clock())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        has_crashed = isinstance(error, Exception) and not isinstance(error, WatchtestError)
        if self._state is not None and not has_crashed:
            # After a crash the file stays as it is: readers see from the free lock that the watcher died.
            at_work, self._state = self._state, leave(self._state)
            self._write(self._clock())
            if not self._is_due and self._stop_record is not None:
                record, status = self._stop_record, self._written
                self._try(lambda: write_record(record, status, at_work))

    def show(self, state: State, now: float) -> None:
        """Write `state` at once if its essence changed, and otherwise soon."""
        if state is self._state:
            return
        before, self._state, self._is_due = self._state, state, True
        if before is None or _essence(before) != _essence(state):
            self._write(now)
        else:
            self.tick(now)

    def tick(self, now: float) -> None:
        """Write what is due, and touch the heartbeat."""
        self._is_due = self._is_due or self._is_incomplete() or self._flaky() != self._written_flaky
        # Both are also due if the clock was set back.
        if self._is_due and not 0 <= now - self._written_at < INTERVAL_S:
            self._write(now)
        if not 0 <= now - self._heartbeat_at < self.writer.heartbeat_s:
            self._heartbeat_at = now  # even if it fails, so that it is not tried more often
            self._try(lambda: self._touch_heartbeat(now))

    def document(self, state: State) -> Document:
        """Return the document of `state` as the file has it, or will have in a moment."""
        now = self._clock()
        self.show(state, now)
        if self._is_due:
            self._seq += 1  # documents that differ must not share a number
        return document(state, seq=self._seq, now=now, writer=self.writer, flaky=self._flaky())

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
        content = document(state, seq=self._seq + 1, now=self._written_at, writer=self.writer, flaky=flaky)
        located = locations(state.top)
        if located != self._written_locations or not self._exists("locations"):
            # Before the status, so that a reader of the verdict finds its locations.
            self._folder.replace("locations", located.encode("utf-8", "replace"))
            self._written_locations = located
        self._folder.replace("status.json", json.dumps(content, indent=1).encode())
        self._seq += 1
        self._written, self._written_flaky = content, flaky

    def _is_incomplete(self) -> bool:
        """Whether a file that was written has been deleted since."""
        is_written = self._written_locations is not None
        return is_written and not (self._exists("status.json") and self._exists("locations"))

    def _exists(self, name: str) -> bool:
        return os.path.lexists(os.path.join(self._folder.path, name))  # noqa: PTH118  four times a second

    def _make_folder(self) -> None:
        self._folder.make()
        if self._folder.stat("heartbeat") is None:
            # The folder is new or was emptied: the files beside the status must be written again now.
            self._written_locations = None
            self._touch_heartbeat(self._clock())

    def _touch_heartbeat(self, now: float) -> None:
        self._folder.make()
        self._folder.touch("heartbeat", now)
        self._heartbeat_at = now

    def _try(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except (OSError, WorkspaceError) as error:
            reason = error.message if isinstance(error, WorkspaceError) else error.strerror or error
            text = f"cannot write the status file: {self._folder.path}: {reason}; will retry"
            if text not in self._reported:
                self._reported.add(text)
                self._on_problem(text)
            return False
        return True


def writer_of_this_process(version: str) -> WriterInfo:
    """Return the identity of this process, as precisely as the system reports it."""
    return WriterInfo(
        pid=os.getpid(),
        host=platform.node(),
        version=version,
        started_at=time.time(),
        pid_start=_pid_start(_content(Path("/proc/self/stat"))),
        boot_id=_content(Path("/proc/sys/kernel/random/boot_id")).strip() or None,
    )


def _pid_start(stat: str) -> int | None:
    # The name of the process is in brackets and may itself contain blanks and brackets; field 22 is the start time.
    fields = stat.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 else None


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # no /proc: the field is null
        return ""


def _last_seq(folder: OwnFolder) -> int:
    try:
        seq = json.loads(folder.read("status.json"))["seq"]
    except (
        OSError,
        WorkspaceError,
        ValueError,
        LookupError,
        TypeError,
        RecursionError,
    ):
        return 0  # no valid file yet: start counting
    return seq if isinstance(seq, int) and seq > 0 else 0


def _essence(state: State) -> tuple[object, ...]:
    """Return the part of the state that readers must see at once."""
    return tuple(
        (
            *(lane.lane, activity(lane), mood(lane).colour, lane.knowledge.at),
            *(lane.provisional, lane.problem, lane.box.services),
        )
        for lane in state.lanes.values()
    )
