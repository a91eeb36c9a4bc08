"""The watcher of this process as somebody at its dashboard sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from watchtest.core.events import Event
from watchtest.core.model import Place
from watchtest.core.state import State
from watchtest.views.asking import events_of
from watchtest.views.failures import choices, place_of
from watchtest.views.look import Look, Wish
from watchtest.views.page import page
from watchtest.views.rows import Row
from watchtest.views.screen import rows


class StateScene:
    """`state` gives the present one, `post` takes events. `title` and `root` name the workspace."""

    def __init__(self, state: Callable[[], State], post: Callable[[Event], None], title: str, root: str) -> None:
        self._state = state
        self._post = post
        self._title = title
        self._root = root

    def rows(self, look: Look, height: int, now: float) -> Sequence[Row]:
        return rows(self._state(), now=now, height=height, title=self._title, root=self._root, look=look)

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
