"""The watcher of this process as somebody at its dashboard sees it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from watchtest.control.api.requests import ScreenWish
from watchtest.core.events import Event
from watchtest.core.model import Place
from watchtest.core.state import State
from watchtest.views.dashboard.failure_list import Around, choices, place_of
from watchtest.views.dashboard.navigation import NOTHING_CHOSEN, Look, Panel, Wish
from watchtest.views.dashboard.styled_rows import Row, as_document
from watchtest.views.dashboard.zz_views_asking import events_of
from watchtest.views.dashboard.zz_views_page import page
from watchtest.views.dashboard.zz_views_screen import rows

NEWS_LIMIT_S = 1.0
"""So long an answer waits for something new."""


class StateScene:
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

    def rows(self, look: Look, height: int, now: float) -> Sequence[Row]:
        around = Around(self._root, self.flaky() or frozenset())
        return rows(self._state(), now=now, height=height, title=self._title, look=look, around=around)

    def choices(self, look: Look) -> int:
        return len(choices(self._state().top, look))

    def place(self, look: Look) -> Place | None:
        found = choices(self._state().top, look)
        return place_of(found[min(max(look.chosen, 0), len(found) - 1)]) if found else None

    async def page(self, look: Look) -> str:
        return page(self._state().top, look)

    def wish(self, wish: Wish, look: Look) -> None:
        for event in events_of(wish, look, self._state(), time.time()):
            self._post(event)


class Screens:
    """The same for somebody elsewhere, who asks for rows and is answered when there are new ones."""

    def __init__(self, scene: StateScene, state: Callable[[], State]) -> None:
        self._scene = scene
        self._state = state
        self._seq = 1
        self._changed = asyncio.Event()

    def show(self, _before: State, _after: State, _event: Event | None) -> None:
        """A view of the loop."""
        self._seq += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def document(self, wish: ScreenWish) -> dict[str, Any]:
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
            "override": lane.override.value if lane.override else None,
            "red": len(lane.knowledge.red),
            "notice": self._scene.notice(),
        }

    async def text(self, wish: ScreenWish) -> str:
        return await self._scene.page(look_of(wish))


def look_of(wish: ScreenWish) -> Look:
    panel: Panel = "help" if wish.panel == "help" else "why" if wish.panel == "why" else ""
    chosen = NOTHING_CHOSEN if wish.chosen is None else wish.chosen
    return Look(panel, wish.filter, wish.is_typing, chosen)
