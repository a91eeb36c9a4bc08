"""How a user looks at the dashboard, and how each key press changes that. Pure.

The dashboard of a watcher and an attached dashboard share this.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from watchtest.views.dashboard.actions import ACTIONS, Action
from watchtest.views.dashboard.key_reader import BACKSPACE, DOWN, ENTER, ESCAPE

Panel = Literal["", "help", "why"]
"""The panel that is open above the footer."""
FILTER_LIMIT = 100


@dataclass(frozen=True, slots=True)
class ViewState:
    panel: Panel = ""
    filter: str = ""
    """Only tests whose names contain all of these words are shown."""
    is_typing: bool = False
    """The filter is being typed: every key adds to it."""
    selected: int | None = None
    """The index of the selected failure among those shown."""


def press(view: ViewState, key: str, failures: int) -> tuple[ViewState, Action | None]:
    """Return the view after a key press, and the action left to perform. `failures` is the number of failures shown."""
    if view.is_typing:
        return _type(view, key), None
    if key == ESCAPE:
        return ViewState(), None
    if key == ENTER:
        return view, None if view.selected is None else Action.OUTPUT
    match ACTIONS.get(key.lower()):
        case Action.HELP:
            return replace(view, panel="" if view.panel == "help" else "help"), None
        case Action.WHY:
            return replace(view, panel="" if view.panel == "why" else "why"), None
        case Action.FILTER:
            return replace(view, is_typing=True, filter="", selected=None), None
        case Action.SELECT:
            return replace(view, selected=_neighbour(view.selected, key == DOWN, failures)), None
        case action:
            return view, action


def _type(view: ViewState, key: str) -> ViewState:
    if key == ENTER:
        return replace(view, is_typing=False)
    if key == ESCAPE:
        return replace(view, is_typing=False, filter="")
    if key == BACKSPACE:
        return replace(view, filter=view.filter[:-1])
    return replace(view, filter=(view.filter + key)[:FILTER_LIMIT]) if len(key) == 1 else view


def _neighbour(selected: int | None, is_down: bool, failures: int) -> int | None:
    """Return the next or previous index, wrapping around at both ends."""
    if not failures:
        return None
    if selected is None:
        return 0 if is_down else failures - 1
    return (min(selected, failures - 1) + (1 if is_down else -1)) % failures
