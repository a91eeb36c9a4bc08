"""Settings that are saved while a watcher runs: it goes on with its own, and says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from watchtest.config import Config
from watchtest.config.loader import WORKSPACE_FILES
from watchtest.core.events import Event, SourceChanged
from watchtest.core.state import State
from watchtest.errors import WatchtestError

START_AGAIN = "they count from the next start on (`watchtest restart`, or leave and start it again)"


@dataclass(slots=True)
class Rereading:
    """A view of the loop. `reread` gives the settings as they are in the files now."""

    config: Config
    reread: Callable[[], Config]
    say: Callable[[str], None]
    _told: str = ""

    def show(self, _before: State, _after: State, event: Event | None) -> None:
        if isinstance(event, SourceChanged) and event.paths.intersection(WORKSPACE_FILES):
            text = self._news()
            if text and text != self._told:
                self.say(text)
            self._told = text

    def _news(self) -> str:
        try:
            is_same = self.reread() == self.config
        except WatchtestError as error:
            return f"the settings as they are now are wrong: {error.message}"
        return "" if is_same else f"the settings have changed: {START_AGAIN}"
