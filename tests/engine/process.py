"""Identifies processes that we may end by id *and* start time, so that a reused id is never mistaken for ours.

Linux only, as is starting an engine.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.command import EngineScriptError


@dataclass(frozen=True, slots=True)
class OwnProcess:
    name: str
    pid: int
    started_ticks: int
    boot_id: str

    @classmethod
    def of(cls, name: str, pid: int) -> OwnProcess | None:
        """Return the process with this id; None if there is none."""
        started_ticks = _started_ticks(pid)
        return None if started_ticks is None else cls(name, pid, started_ticks, _boot_id())

    def is_alive(self) -> bool:
        return self.boot_id == _boot_id() and _started_ticks(self.pid) == self.started_ticks

    def end(self, *, patience_s: float) -> str:
        """Terminate it, wait, kill it if needed, and return what it took."""
        with self._descriptor() as descriptor:
            if descriptor is None:
                return f"{self.name} (process {self.pid}) had ended before"
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            if _ends(descriptor, patience_s):
                return f"{self.name} (process {self.pid}) stopped"
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            if _ends(descriptor, 10):
                return f"{self.name} (process {self.pid}) killed: it did not stop within {patience_s:.0f} s"
            raise EngineScriptError(f"{self.name} (process {self.pid}) survived SIGKILL: look at it by hand")

    @contextmanager
    def _descriptor(self) -> Iterator[int | None]:
        """Open a handle on exactly this process: it is opened first and compared second, so a reused id cannot slip
        in."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            yield None
            return
        try:
            yield descriptor if self.is_alive() else None
        finally:
            os.close(descriptor)


def children_of(pid: int) -> Iterator[tuple[str, int]]:
    """Return the name and id of each direct child."""
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(folder.name))
        if fields is not None and int(fields[2]) == pid:
            yield fields[0], int(folder.name)


def _started_ticks(pid: int) -> int | None:
    fields = _stat(pid)
    # A zombie has ended, even if its parent has not collected it yet.
    return None if fields is None or fields[1] == "Z" else int(fields[20])


def _stat(pid: int) -> list[str] | None:
    """Return name, state, parent and so on. The name is in parentheses and may itself hold spaces and parentheses."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    before, _, after = text.rpartition(")")
    return [before.partition("(")[2], *after.split()]


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _ends(descriptor: int, patience_s: float) -> bool:
    with closing(select.epoll()) as poll:
        poll.register(descriptor, select.EPOLLIN)
        return bool(poll.poll(patience_s))
