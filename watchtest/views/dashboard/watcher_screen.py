"""The watcher of this process as somebody at its dashboard sees it.

What a wish of somebody at the dashboard means for the top lane: an event. Pure.

What the dashboard says, row by row, for a screen of a given height. Pure, and knows no terminal library.

head      the verdict, its code and its age; the other lanes; what goes on now, what waits, what is wrong
failures  those of the current run first; or the end of an output that could not be read; or what a filter finds
foot      box, last runs, keys
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from watchtest.core.events import (
    CancelRequested,
    Event,
    PauseRequested,
    PolicyRequested,
    QuitRequested,
    ResumeRequested,
    RunRequested,
)
from watchtest.core.model import All, Location, Policy
from watchtest.core.policy import matching_selection, policy_selection, repeat_selection
from watchtest.core.state import State
from watchtest.views.dashboard.failure_list import (
    ScreenContext,
    failure_rows,
    location_of,
    output_text,
    selectable_failures,
)
from watchtest.views.dashboard.footer import footer_rows
from watchtest.views.dashboard.header import NOTES_SHOWN, header_rows
from watchtest.views.dashboard.navigation import NOTHING_CHOSEN, Action, Panel, ViewState
from watchtest.views.dashboard.styled_rows import StyledRow, as_document


def events_of(wish: Action, look: ViewState, state: State, now: float) -> tuple[Event, ...]:
    """None for a wish that is nothing to the watcher."""
    lane = state.top
    name = lane.lane
    match wish:
        case Action.QUIT:
            return (QuitRequested(name, now),)
        case Action.ALL:
            return (PolicyRequested(name, now, None), RunRequested(name, now, All(because="asked for by key")))
        case Action.FAILED:
            if lane.policy_override is Policy.FAILED:
                return (PolicyRequested(name, now, None),)
            run = RunRequested(name, now, policy_selection(Policy.FAILED, lane.knowledge))
            return (PolicyRequested(name, now, Policy.FAILED), *([run] if lane.knowledge.red else []))
        case Action.RERUN:
            selection = matching_selection(lane, look.filter) if look.filter else repeat_selection(lane)
            # With a filter that matches nothing there is nothing to run; not everything.
            return (RunRequested(name, now, selection),) if selection or not look.filter else ()
        case Action.CANCEL | Action.KILL:
            return (CancelRequested(name, now, is_kill=wish is Action.KILL),)
        case Action.PAUSE:
            return (ResumeRequested(name, now) if lane.is_paused else PauseRequested(name, now),)
        case Action.OUTPUT | Action.EDIT:
            return ()


ROOMY = 20
"""From this height on there are empty rows between the parts."""


def screen_rows(
    state: State,
    *,
    now: float,
    height: int,
    title: str = "",
    look: ViewState | None = None,
    around: ScreenContext | None = None,
) -> list[StyledRow]:
    """The rows of a screen of `height`, exactly."""
    look, around = look or ViewState(), around or ScreenContext()
    lane = state.top
    above = header_rows(state, now, title, NOTES_SHOWN if height >= ROOMY else 1)
    below = footer_rows(lane, look, max(height - len(above) - 6, 0))
    gap = [StyledRow()] if height >= ROOMY else []
    room = height - len(above) - len(below) - 2 * len(gap)
    between = failure_rows(lane, look, max(room, 0), around)
    filling = [StyledRow()] * (room - len(between))
    return [*above, *gap, *between, *filling, *gap, *below][:height]


NEWS_LIMIT_S = 1.0
"""So long an answer waits for something new."""


DEFAULT_HEIGHT = 24


@dataclass(frozen=True, slots=True)
class ScreenRequest:
    """How an attached terminal looks at the dashboard."""

    height: int = DEFAULT_HEIGHT
    panel: str = ""
    filter: str = ""
    is_typing: bool = False
    chosen: int | None = None
    after: int = 0
    """Wait until there is a screen newer than this one, or until a moment has passed."""


class LocalBackend:
    """`state` gives the present one, `post` takes events. `title` and `root` name the workspace."""

    def __init__(self, state: Callable[[], State], post: Callable[[Event], None], title: str, root: str) -> None:
        self._state = state
        self._post = post
        self._title = title
        self._root = root
        self.flaky: Callable[[], frozenset[str] | None] = lambda: None
        """The tests that are known to pass and fail by chance; None: nobody knows."""
        self.notice: Callable[[], dict[str, Any] | None] = lambda: None
        """What the terminals of those who are attached have to be told."""

    def rows(self, look: ViewState, height: int, now: float) -> Sequence[StyledRow]:
        around = ScreenContext(self._root, self.flaky() or frozenset())
        return screen_rows(self._state(), now=now, height=height, title=self._title, look=look, around=around)

    def choices(self, look: ViewState) -> int:
        return len(selectable_failures(self._state().top, look))

    def place(self, look: ViewState) -> Location | None:
        found = selectable_failures(self._state().top, look)
        return location_of(found[min(max(look.chosen, 0), len(found) - 1)]) if found else None

    async def page(self, look: ViewState) -> str:
        return output_text(self._state().top, look)

    def wish(self, wish: Action, look: ViewState) -> None:
        for event in events_of(wish, look, self._state(), time.time()):
            self._post(event)


class ScreenServer:
    """The same for somebody elsewhere, who asks for rows and is answered when there are new ones."""

    def __init__(self, scene: LocalBackend, state: Callable[[], State]) -> None:
        self._scene = scene
        self._state = state
        self._seq = 1
        self._changed = asyncio.Event()

    def show(self, _before: State, _after: State, _event: Event | None) -> None:
        """A view of the loop."""
        self._seq += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def document(self, wish: ScreenRequest) -> dict[str, Any]:
        if wish.after >= self._seq:
            try:
                async with asyncio.timeout(NEWS_LIMIT_S):
                    await self._changed.wait()
            except TimeoutError:
                pass  # the ages on it have grown
        look, lane = look_of(wish), self._state().top
        place = self._scene.place(look)
        return {
            "seq": self._seq,
            "lane": lane.lane.value,
            "rows": [as_document(row) for row in self._scene.rows(look, wish.height, time.time())],
            "choices": self._scene.choices(look),
            "place": {"file": place.file, "line": max(place.line, 1)} if place else None,
            "paused": lane.is_paused,
            "override": lane.policy_override.value if lane.policy_override else None,
            "red": len(lane.knowledge.red),
            "notice": self._scene.notice(),
        }

    async def text(self, wish: ScreenRequest) -> str:
        return await self._scene.page(look_of(wish))


def look_of(wish: ScreenRequest) -> ViewState:
    panel: Panel = "help" if wish.panel == "help" else "why" if wish.panel == "why" else ""
    chosen = NOTHING_CHOSEN if wish.chosen is None else wish.chosen
    return ViewState(panel, wish.filter, wish.is_typing, chosen)
