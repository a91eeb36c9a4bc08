"""Notices that a config file was saved while the watcher runs, which keeps the settings it started with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from watchtest.config import Config
from watchtest.config.loader import WORKSPACE_FILES
from watchtest.core.events import Event, SourceChanged
from watchtest.core.state import State
from watchtest.errors import WatchtestError

RESTART = "restart to apply them (`watchtest restart`, or quit and start again)"


@dataclass(slots=True)
class ConfigChangeNotice:
    """A view of the loop. `reload` returns the settings that are in the files now."""

    config: Config
    reload: Callable[[], Config]
    say: Callable[[str], None]
    _last: str = ""

    def show(self, _before: State, _after: State, event: Event | None) -> None:
        if isinstance(event, SourceChanged) and event.paths.intersection(WORKSPACE_FILES):
            text = self._notice()
            if text and text != self._last:
                self.say(text)
            self._last = text

    def _notice(self) -> str:
        try:
            is_same = self.reload() == self.config
        except WatchtestError as error:
            return f"the settings have changed, but are invalid: {error.message}"
        return "" if is_same else f"the settings have changed: {RESTART}"
