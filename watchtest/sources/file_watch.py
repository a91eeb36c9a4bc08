"""Tells when the working tree has changed. May say so once too often, never once too seldom; the snapshot decides.

An overflow of the kernel's queue is not reported everywhere, so a burst that could have caused one counts as
EVERYTHING; so does a sleep of the machine, a failed watcher, and any change of which folders there are.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path

from watchtest.core.events import EVERYTHING
from watchtest.sources.streams import WatcherFailed
from watchtest.sources.subscription import Subscriber, Subscription, Territory, inode_of

TICK_S = 1.0
ASLEEP_S = 3.0
"""So far may the clock on the wall move against the one that stands still while the machine sleeps."""
BURST = 2_000
FEW = 4
"""One save touches the file and perhaps a few beside it: a temporary one, a backup."""
STEP_MS = 3
"""So long after the last event the watcher tells of them; elsewhere than on Linux it may be twice that."""
MOST_FAILURES = 3
FAILURES_WITHIN_S = 60.0
ALL = frozenset({EVERYTHING})


@dataclass(frozen=True, slots=True)
class Timing:
    """Trailing debounce: a batch ends after so much quiet, and at the latest when the cap is reached.

    With `is_hasty` a few paths are told of at once: whoever starts work on them holds its outcome back until the rest
    of the debounce has passed (`LaneState.settle_s`).
    """

    debounce_ms: int
    debounce_cap_ms: int
    poll_s: float = 1.0
    is_hasty: bool = False
    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic

    @property
    def held_back_s(self) -> float:
        """How long after the start of hasty work its outcome is held back: what is left of the debounce by then."""
        return max(self.debounce_ms - STEP_MS, 0) / 1000 if self.is_hasty else 0.0

    def quiet_s(self, count: int) -> float:
        """How long nothing more must come after the watcher has told, a step or two after the change, of so many."""
        if self.is_hasty and count <= FEW:
            return 0.0
        return max(self.debounce_ms - STEP_MS, 10) / 1000


async def watch(
    root: Path,
    *,
    territory: Territory,
    timing: Timing,
    stop: asyncio.Event,
    note: Callable[[str], None],
    is_polling: bool = False,
) -> AsyncGenerator[frozenset[str], None]:
    """Batches of changed paths, relative to the root; EVERYTHING among them when anything may have changed.

    The first batch is {EVERYTHING} and says that the subscription stands: a snapshot taken after it misses nothing.
    Ends when `stop` is set. A workspace that is gone is a WorkspaceError. `note` is told, from any thread, why it has
    to poll. Close it (`contextlib.aclosing`) when leaving early.
    """
    watching = _Watching(root, territory, timing, note, is_polling)
    try:
        await watching.subscribe()
        yield ALL
        while not stop.is_set():
            raw = await watching.collected(stop)
            if not stop.is_set() and (batch := await watching.sifted(raw)):
                yield batch
    finally:
        await watching.close()


class _Watching:
    def __init__(
        self, root: Path, territory: Territory, timing: Timing, note: Callable[[str], None], is_polling: bool
    ) -> None:
        self._root = os.path.realpath(root)  # events name real paths
        self._territory = territory
        self._timing = timing
        self._subscriber = Subscriber(self._root, territory, timing.poll_s, note, is_polling)
        self._subscription: Subscription | None = None
        self._offset_s = timing.wall() - timing.steady()
        self._failures: list[float] = []

    async def subscribe(self) -> None:
        old = self._subscription
        self._subscription = await asyncio.to_thread(self._subscriber.subscribe)
        if old is not None:
            await old.close()

    async def close(self) -> None:
        if self._subscription is not None:
            await self._subscription.close()

    async def collected(self, stop: asyncio.Event) -> frozenset[str]:
        """Waits for a change, then for quiet."""
        raw = frozenset[str]()
        deadline: float | None = None
        while not stop.is_set():
            left_s = TICK_S if deadline is None else deadline - self._timing.steady()
            quiet_s = self._timing.quiet_s(len(raw))
            found = await self._found_within(left_s if deadline is None else min(quiet_s, left_s), stop)
            raw |= found
            if self._was_asleep():
                return raw | ALL
            if deadline is None:
                if self._is_replaced():
                    return raw | ALL
                if found:
                    deadline = self._timing.steady() + self._timing.debounce_cap_ms / 1000
            elif not found or self._timing.steady() >= deadline:
                return raw
        return raw

    async def sifted(self, raw: frozenset[str]) -> frozenset[str]:
        """What of it matters; with a subscription to the folders as they are now."""
        if self._is_replaced():
            await self.subscribe()
            return ALL
        assert self._subscription is not None
        named = raw - ALL
        await asyncio.to_thread(self._territory.learn, named)
        relevant = frozenset(path for path in named if not self._territory.is_left_out(path))
        is_all = EVERYTHING in raw or len(raw) >= BURST
        if is_all or any(self._subscription.is_about_folders(path) for path in relevant):
            folders = await asyncio.to_thread(self._territory.folders)
            if not self._subscription.covers(folders):
                await self.subscribe()
                is_all = True
        return relevant | ALL if is_all else relevant

    async def _found_within(self, seconds: float, stop: asyncio.Event) -> frozenset[str]:
        assert self._subscription is not None
        try:
            return await self._subscription.found_within(max(seconds, 0.0), stop)
        except WatcherFailed as error:
            now = self._timing.steady()
            self._failures = [at for at in self._failures if now - at < FAILURES_WITHIN_S] + [now]
            if len(self._failures) > MOST_FAILURES:
                self._subscriber.poll_because(f"the file watcher fails again and again ({error})")
            await self.subscribe()
            return ALL

    def _was_asleep(self) -> bool:
        before, self._offset_s = self._offset_s, self._timing.wall() - self._timing.steady()
        return abs(self._offset_s - before) > ASLEEP_S

    def _is_replaced(self) -> bool:
        """Whether another folder stands where the workspace was. Raises when there is none."""
        return self._subscription is None or self._subscription.inode != inode_of(self._root)
