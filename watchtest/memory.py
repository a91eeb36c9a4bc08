"""Keeps the memory of a watcher that lives for weeks flat.

Python looks for what only refers to itself when the number of objects has grown by a quarter. A watcher has imported
nearly a hundred thousand that never go away, so it would wait for megabytes of leftovers, and then look at all of them.
Set aside once, they are neither counted nor looked at again: later looks are early, and cost next to nothing.

What threads have freed, glibc keeps for them, a heap each; now and then it is asked to give it back.
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
    """A view's `tick`. Begins with the first end of a run: by then everything is imported that ever will be."""

    def __init__(self, trim: Callable[[], None] | None = None) -> None:
        self._trim = trim if trim is not None else _trimmer()
        self._is_set_aside = False
        self._runs = 0
        self._trimmed_at = float("-inf")

    def tick(self, state: State, now: float) -> None:
        if not self._is_set_aside and any(lane.runs.last is not None for lane in state.lanes.values()):
            self._is_set_aside = True
            gc.collect()
            gc.freeze()
        runs = sum(lane.runs.started for lane in state.lanes.values())
        if self._is_set_aside and runs != self._runs and not 0 <= now - self._trimmed_at < TRIM_EVERY_S:
            self._runs, self._trimmed_at = runs, now
            self._trim()


def _trimmer() -> Callable[[], None]:
    """Where the system's own allocator has to be asked; elsewhere there is nothing to do."""
    trim = None
    if sys.platform == "linux":
        try:
            trim = ctypes.CDLL(None).malloc_trim
        except (OSError, AttributeError):
            log.info("this C library gives memory back by itself")
    return (lambda: None) if trim is None else lambda: trim(0)
