"""Keeps the memory of a watcher that lives for weeks flat: what runs leave behind is found while there is little of it.

Python looks for what only refers to itself when the number of objects has grown by a quarter. A watcher has imported
hundreds of thousands that never go away, so it would wait for megabytes of leftovers, and then look at all of them.
Set aside once, they are neither counted nor looked at again: later looks are early, and cost next to nothing.
"""

from __future__ import annotations

import gc

from watchtest.core.state import State


class Housekeeping:
    """A view's `tick`. Waits for the first end of a run: by then everything is imported that ever will be."""

    def __init__(self) -> None:
        self._is_done = False

    def tick(self, state: State) -> None:
        if not self._is_done and any(lane.last is not None for lane in state.lanes.values()):
            self._is_done = True
            gc.collect()
            gc.freeze()
