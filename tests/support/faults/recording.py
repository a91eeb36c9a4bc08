"""Records every status that a watcher writes, with the time it was seen."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from support.watcher_process import Status, Watcher

LOOK_EVERY_S = 0.005


@dataclass
class Recording:
    """A recording in progress; `seen` grows as statuses arrive."""

    began: float = field(default_factory=time.monotonic)
    seen: list[tuple[float, Status]] = field(default_factory=list)
    """Seconds since the beginning, and the status."""

    @property
    def troubled(self) -> list[tuple[float, Status]]:
        """Return the statuses that report a problem."""
        return [(at, status) for at, status in self.seen if status["problem"]]


@contextmanager
def recorded(watcher: Watcher) -> Iterator[Recording]:
    recording = Recording()
    is_over = threading.Event()

    def record() -> None:
        last = -1
        while not is_over.wait(LOOK_EVERY_S):
            status = watcher.own_status
            if status and status["seq"] != last:
                last = status["seq"]
                recording.seen.append((time.monotonic() - recording.began, status))

    recorder = threading.Thread(target=record, name="recorder")
    recorder.start()
    try:
        yield recording
    finally:
        is_over.set()
        recorder.join()
