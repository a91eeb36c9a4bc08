"""The keys of the dashboard, the action of each key, and what an action asks of the watcher. Pure.

`KEYS` is the only table of keys: the key presses, the footer and the help panel are all derived from it. A watcher in
this process receives an action as events, a watcher in another process as API requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from watchtest.core import events
from watchtest.core.model import All, Policy
from watchtest.core.policy import matching_selection, policy_selection, repeat_selection
from watchtest.core.state import State
from watchtest.views.dashboard.key_reader import DOWN, UP


class Action(StrEnum):
    """What a key does. The value is the label of the key in the footer."""

    RERUN = "rerun"
    ALL = "all"
    FAILED = "failed"
    CANCEL = "cancel"
    KILL = "kill"
    PAUSE = "pause"
    FILTER = "filter"
    SELECT = "select"
    EDIT = "edit"
    OUTPUT = "output"
    WHY = "why"
    HELP = "help"
    QUIT = "quit"


@dataclass(frozen=True, slots=True)
class KeyBinding:
    label: str
    action: Action
    help: str
    keys: tuple[str, ...] = ()
    """The keys as `key_reader` names them, if they differ from the label."""


KEYS = (
    KeyBinding("r", Action.RERUN, "run the last tests again"),
    KeyBinding("a", Action.ALL, "run all tests"),
    KeyBinding("f", Action.FAILED, "toggle failed tests only"),
    KeyBinding("c", Action.CANCEL, "cancel the run"),
    KeyBinding("k", Action.KILL, "kill the run, no cleanup"),
    KeyBinding("p", Action.PAUSE, "pause or resume"),
    KeyBinding("/", Action.FILTER, "filter tests by name"),
    KeyBinding("↑↓", Action.SELECT, "select a failure", keys=(UP, DOWN)),
    KeyBinding("e", Action.EDIT, "open it in $EDITOR"),
    KeyBinding("o", Action.OUTPUT, "page the full output"),
    KeyBinding("w", Action.WHY, "why these tests ran"),
    KeyBinding("h", Action.HELP, "show or hide this help", keys=("h", "?")),
    KeyBinding("q", Action.QUIT, "quit; the box stays"),
)
FOOTER_ORDER = "hqrafcp/owek"
"""The most useful keys first: a narrow screen has no room for the last ones."""
ACTIONS = {key: binding.action for binding in KEYS for key in binding.keys or (binding.label,)}

ApiRequest = tuple[str, dict[str, object] | None]
"""The path and the body of a POST request."""


def events_of(action: Action, name_filter: str, state: State, now: float) -> tuple[events.Event, ...]:
    """Return the events by which a watcher in this process performs an action on its top lane."""
    lane = state.top
    name = lane.lane
    match action:
        case Action.QUIT:
            return (events.QuitRequested(name, now),)
        case Action.ALL:
            run = events.RunRequested(name, now, All(because="asked for by key"))
            return (events.PolicyRequested(name, now, None), run)
        case Action.FAILED:
            if lane.policy_override is Policy.FAILED:
                return (events.PolicyRequested(name, now, None),)
            run = events.RunRequested(name, now, policy_selection(Policy.FAILED, lane.knowledge))
            return (events.PolicyRequested(name, now, Policy.FAILED), *([run] if lane.knowledge.red else []))
        case Action.RERUN:
            selection = matching_selection(lane, name_filter) if name_filter else repeat_selection(lane)
            # A filter that matches nothing runs nothing; without a selection the lane's policy would decide.
            return (events.RunRequested(name, now, selection),) if selection or not name_filter else ()
        case Action.CANCEL | Action.KILL:
            return (events.CancelRequested(name, now, is_kill=action is Action.KILL),)
        case Action.PAUSE:
            return (events.ResumeRequested(name, now) if lane.is_paused else events.PauseRequested(name, now),)
        case _:
            return ()  # the other actions are the dashboard's own


def requests_of(action: Action, name_filter: str, screen: Mapping[str, Any]) -> list[ApiRequest]:
    """Return the API requests by which a watcher elsewhere performs an action; `screen` is its last answer."""
    match action:
        case Action.ALL:
            return [("/policy", {"policy": "configured"}), ("/runs", {"policy": "all"})]
        case Action.FAILED if screen.get("override") == "failed":
            return [("/policy", {"policy": "configured"})]
        case Action.FAILED:
            run: list[ApiRequest] = [("/runs", {"policy": "failed"})] if screen.get("red") else []
            return [("/policy", {"policy": "failed"}), *run]
        case Action.RERUN:
            return [("/runs", {"matching": name_filter} if name_filter else {"again": True})]
        case Action.CANCEL | Action.KILL:
            return [(f"/runs/current/{action.value}", None)]
        case Action.PAUSE:
            return [("/resume" if screen.get("paused") else "/pause", {"lane": screen.get("lane")})]
        case _:
            return []  # quitting an attached dashboard leaves the watcher alone
