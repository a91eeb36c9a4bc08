"""What the loop needs of a lane's pipeline: the seam where tests put one of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from watchtest.boxes.protocols import StopWish
from watchtest.core.events import Ending, Event, StartRun
from watchtest.core.model import Snapshot

Post = Callable[[Event], None]


class Closing(Protocol):
    async def close(self) -> None: ...


class Carrier(Protocol):
    """Carries out the runs of one lane, and looks at its source for the loop."""

    @property
    def box(self) -> Closing: ...

    def listen(self, post: Post) -> None:
        """From now on tell of what happens between runs."""

    async def carry_out(self, start: StartRun, post: Post, wish: StopWish) -> Ending:
        """The whole of a run; raises WatchtestError when the tool, not the code, fails."""

    async def is_still(self, snapshot: Snapshot) -> bool:
        """Whether the whole source is what it was."""

    async def changed_since(self, snapshot: Snapshot, paths: frozenset[str]) -> frozenset[str]:
        """Which of these paths (EVERYTHING: which at all) now differ from that snapshot, by content or mode."""
