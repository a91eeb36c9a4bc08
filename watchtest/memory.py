"""Keeps the memory of a watcher constant that runs for weeks.

Python's full garbage collection starts when the number of objects has grown by a quarter. A watcher has imported nearly
a hundred thousand objects that never go away, so the collection would wait for megabytes of garbage and then scan all
of them. Frozen once, these objects are neither counted nor scanned again.

glibc keeps freed memory in one heap per thread; from time to time it is asked to return that memory to the system.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
from collections.abc import Callable

from watchtest.core.state import State

log = logging.getLogger(__name__)
TRIM_EVERY_S = 30.0


class Housekeeping:
    """Freezes imported objects after the first run, when all modules are loaded, and trims the heap after runs."""

    def __init__(self, trim: Callable[[], None] | None = None) -> None:
        self._trim = trim if trim is not None else _trimmer()
        self._is_frozen = False
        self._runs = 0
        self._trimmed_at = float("-inf")

    def tick(self, state: State, now: float) -> None:
        if not self._is_frozen and any(lane.runs.last is not None for lane in state.lanes.values()):
            self._is_frozen = True
            gc.collect()
            gc.freeze()
        runs = sum(lane.runs.started for lane in state.lanes.values())
        if self._is_frozen and runs != self._runs and not 0 <= now - self._trimmed_at < TRIM_EVERY_S:
            self._runs, self._trimmed_at = runs, now
            self._trim()


def _trimmer() -> Callable[[], None]:
    """Return glibc's `malloc_trim`, or a function that does nothing if the C library has none."""
    trim = None
    if sys.platform == "linux":
        try:
            trim = ctypes.CDLL(None).malloc_trim
        except (OSError, AttributeError):
            log.info("this C library has no malloc_trim")
    return (lambda: None) if trim is None else lambda: trim(0)
