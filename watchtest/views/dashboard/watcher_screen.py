"""The screen of the watcher in this process: for the dashboard on its own terminal and for attached terminals.

A screen has three parts: the header (verdict, lanes, current activity, problems), the failures (or the output of a
runner that could not be read, or the tests that match a filter), and the footer (box, last runs, keys).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from watchtest.core.events import Event
from watchtest.core.model import Location
from watchtest.core.state import State
from watchtest.views.dashboard import failure_list
from watchtest.views.dashboard.actions import Action, events_of
from watchtest.views.dashboard.failure_list import ScreenContext, selectable_failures
from watchtest.views.dashboard.footer import footer_rows
from watchtest.views.dashboard.header import NOTES_SHOWN, header_rows
from watchtest.views.dashboard.navigation import ViewState
from watchtest.views.dashboard.styled_rows import EMPTY_ROW, StyledRow, to_document

SPACIOUS_HEIGHT = 20
"""From this height on, empty rows separate the parts."""
DEFAULT_HEIGHT = 24
LONG_POLL_S = 1.0
"""How long an answer waits for a newer screen."""


def screen_rows(
    state: State,
    *,
    now: float,
    height: int,
    title: str = "",
    view: ViewState | None = None,
    context: ScreenContext | None = None,
) -> list[StyledRow]:
    """Return exactly `height` rows. Pure, and independent of the terminal library."""
    view, context = view or ViewState(), context or ScreenContext()
    lane = state.top
    header = header_rows(state, now, title, NOTES_SHOWN if height >= SPACIOUS_HEIGHT else 1)
    footer = footer_rows(lane, view, max(height - len(header) - 6, 0))
    gap = [EMPTY_ROW] if height >= SPACIOUS_HEIGHT else []
    room = height - len(header) - len(footer) - 2 * len(gap)
    failures = failure_list.failure_rows(lane, view, max(room, 0), context)
    filling = [EMPTY_ROW] * (room - len(failures))
    return [*header, *gap, *failures, *filling, *gap, *footer][:height]


@dataclass
class LocalBackend:
    """The dashboard's backend for the watcher in this process. `title` and `root` name the workspace."""

    state: Callable[[], State]
    post: Callable[[Event], None]
    title: str
    root: str
    flaky: Callable[[], frozenset[str] | None] = lambda: None
    """Returns the tests that are known to be flaky, or None without a history."""
    notice: Callable[[], dict[str, Any] | None] = lambda: None
    """Returns the live notification for attached terminals."""

    def rows(self, view: ViewState, height: int, now: float) -> Sequence[StyledRow]:
        context = ScreenContext(self.root, self.flaky() or frozenset())
        return screen_rows(self.state(), now=now, height=height, title=self.title, view=view, context=context)

    def failure_count(self, view: ViewState) -> int:
        return len(selectable_failures(self.state().top, view))

    def location(self, view: ViewState) -> Location | None:
        failures = selectable_failures(self.state().top, view)
        return failure_list.location_of(failures[min(view.selected or 0, len(failures) - 1)]) if failures else None

    async def output(self, view: ViewState) -> str:
        return failure_list.output_text(self.state().top, view)

    def perform(self, action: Action, view: ViewState) -> None:
        for event in events_of(action, view.filter, self.state(), time.time()):
            self.post(event)


class ScreenServer:
    """Serves the dashboard to attached terminals: each request is answered once there is a newer screen."""

    def __init__(self, backend: LocalBackend) -> None:
        self.backend = backend
        self._seq = 1
        self._changed = asyncio.Event()

    def show(self, _before: State, _after: State, _event: Event | None) -> None:
        """Wake the requests that wait for a change."""
        self._seq += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def document(self, view: ViewState, height: int, after: int) -> dict[str, Any]:
        """Return a screen that is newer than the one with the number `after`, or after a second an unchanged one."""
        if after >= self._seq:
            try:
                async with asyncio.timeout(LONG_POLL_S):
                    await self._changed.wait()
            except TimeoutError:
                pass  # answer all the same: the ages on the screen have grown
        lane, location = self.backend.state().top, self.backend.location(view)
        return {
            "seq": self._seq,
            "lane": lane.lane.value,
            "rows": [to_document(row) for row in self.backend.rows(view, height, time.time())],
            "choices": self.backend.failure_count(view),
            "place": {"file": location.file, "line": max(location.line, 1)} if location else None,
            "paused": lane.is_paused,
            "override": lane.policy_override.value if lane.policy_override else None,
            "red": len(lane.knowledge.red),
            "notice": self.backend.notice(),
        }
