"""How somebody looks at a watcher, and what each key makes of that: another look, or a wish. Pure.

The same for the dashboard of a watcher and for one that is attached to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from watchtest.views.dashboard.key_reader import BACKSPACE, DOWN, ENTER, ESCAPE, UP

Panel = Literal["", "help", "why"]
"""What is shown above the last rows."""
FILTER_LIMIT = 100
NOTHING_CHOSEN = -1


class Action(StrEnum):
    """What a key asks for that is not a matter of looking."""

    ALL = "all"
    FAILED = "failed"
    RERUN = "rerun"
    CANCEL = "cancel"
    KILL = "kill"
    PAUSE = "pause"
    OUTPUT = "output"
    EDIT = "edit"
    QUIT = "quit"


WISHES = {
    "a": Action.ALL,
    "f": Action.FAILED,
    "r": Action.RERUN,
    "c": Action.CANCEL,
    "k": Action.KILL,
    "p": Action.PAUSE,
    "o": Action.OUTPUT,
    "e": Action.EDIT,
    "q": Action.QUIT,
}
PANELS: dict[str, Panel] = {"h": "help", "?": "help", "w": "why"}
HINTS = {
    "h": "help",
    "q": "quit",
    "r": "rerun",
    "a": "all",
    "f": "failed",
    "c": "cancel",
    "p": "pause",
    "/": "filter",
    "o": "output",
    "w": "why",
    "e": "edit",
    "k": "kill",
}
"""The most useful first: a narrow screen has no room for the last."""
HELP = {
    "r": "run the last tests again",
    "a": "run all tests",
    "f": "failed only, on or off",
    "c": "cancel the run",
    "k": "kill the run at once",
    "p": "pause, or go on",
    "/": "filter tests by name",
    "↑↓": "choose a failure",
    "e": "open it in $EDITOR",
    "o": "page the whole output",
    "w": "why these tests ran",
    "h": "this help, on or off",
    "q": "leave; the box stays",
}


@dataclass(frozen=True, slots=True)
class ViewState:
    panel: Panel = ""
    filter: str = ""
    """Words that must all be in the name of a test that is shown."""
    is_typing: bool = False
    """The filter is being typed: keys are letters of it."""
    chosen: int = NOTHING_CHOSEN
    """Which of the failures shown, counted from 0."""


def press(look: ViewState, key: str, failures: int) -> tuple[ViewState, Action | None]:
    """What becomes of the look, and what is wished for; `failures` is how many can be chosen from."""
    if look.is_typing:
        return _typed(look, key), None
    if key in PANELS:
        return replace(look, panel="" if look.panel == PANELS[key] else PANELS[key]), None
    match key:
        case "/":
            return replace(look, is_typing=True, filter="", chosen=NOTHING_CHOSEN), None
        case "escape":
            return ViewState(), None
        case "up" | "down":
            return replace(look, chosen=_moved(look.chosen, key, failures)), None
        case "enter":
            return look, Action.OUTPUT if look.chosen != NOTHING_CHOSEN else None
        case _:
            return look, WISHES.get(key.lower())


def _typed(look: ViewState, key: str) -> ViewState:
    match key:
        case _ if key == ENTER:
            return replace(look, is_typing=False)
        case _ if key == ESCAPE:
            return replace(look, is_typing=False, filter="")
        case _ if key == BACKSPACE:
            return replace(look, filter=look.filter[:-1])
        case _ if len(key) == 1:
            return replace(look, filter=(look.filter + key)[:FILTER_LIMIT])
        case _:
            return look


def _moved(chosen: int, key: str, failures: int) -> int:
    """One up or down, and round at the ends."""
    if not failures:
        return NOTHING_CHOSEN
    if chosen == NOTHING_CHOSEN:
        return 0 if key == DOWN else failures - 1
    return (min(chosen, failures - 1) + (1 if key == DOWN else -1 if key == UP else 0)) % failures
