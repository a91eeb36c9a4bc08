"""The lower rows of the dashboard: a panel that was asked for, box and services, the last runs, and the keys. Pure."""

from __future__ import annotations

from watchtest.core.model import Only, RunState
from watchtest.core.policy import is_matched
from watchtest.core.state import LaneState, Syncing, Working
from watchtest.core.text import count
from watchtest.views import words
from watchtest.views.dashboard.navigation import HELP, HINTS, ViewState
from watchtest.views.dashboard.styled_rows import Span, StyledRow, text_row

STRIP = {
    RunState.PASSED: ("✔", "green"),
    RunState.FAILED: ("✘", "red"),
    RunState.ERROR: ("E", "red"),
    RunState.TIMED_OUT: ("T", "red"),
    RunState.NO_TESTS: ("○", "yellow"),
    RunState.BROKEN: ("!", "magenta"),
}
COLUMN = 30


def footer_rows(lane: LaneState, look: ViewState, room: int) -> list[StyledRow]:
    """`room` is for the panel; the rest is a few rows."""
    rows = _why(lane, room) if look.panel == "why" else _help(room) if look.panel == "help" else []
    if lane.box.info:
        # What is not isolated has to be read; the rest of it is cut where there is no room.
        is_long = bool(lane.box.info.isolation)
        rows.append(StyledRow(left=((" box  ", "dim"), (words.box(lane.box.info), "")), wraps=is_long))
    if lane.box.services:
        rows.append(StyledRow(left=((" serv ", "dim"), (words.services(lane.box.services), _health(lane)))))
    if lane.runs.recent_states:
        signs = (STRIP.get(state, ("·", "dim")) for state in lane.runs.recent_states)
        rows.append(
            StyledRow(left=((" runs ", "dim"), *signs), right=((f"{count(lane.runs.started, 'run')} ", "dim"),))
        )
    return [*rows, _filter(lane, look) if look.is_typing or look.filter else _hints()]


def _health(lane: LaneState) -> str:
    states = {service.state for service in lane.box.services}
    return "bold magenta" if "failed" in states else "yellow" if states - {"ready"} else ""


def _why(lane: LaneState, room: int) -> list[StyledRow]:
    """What the run under way was chosen for, or the last one that was judged."""
    run = lane.activity.run if isinstance(lane.activity, Working) else lane.knowledge.run
    if run is None:
        return [text_row("why: nothing has run yet")]
    is_open = isinstance(lane.activity, Working) and isinstance(lane.activity.phase, Syncing)
    said = [text_row(f"why {words.intent(run) if is_open else words.selection(run.selection)}", "bold")]
    reasons = run.selection.reasons if isinstance(run.selection, Only) else ()
    said += [text_row(f"  {reason}") for reason in reasons]
    return (
        said
        if len(said) <= room
        else [*said[: max(room - 1, 0)], text_row(f"  and {len(said) - room + 1} more", "dim")]
    )


def _help(room: int) -> list[StyledRow]:
    """A key a row; where these are too few, two."""
    keys = list(HELP.items())
    if len(keys) <= room:
        return [StyledRow(left=_meaning(key, meaning)) for key, meaning in keys]
    half = (len(keys) + 1) // 2
    right = [*keys[half:], *[("", "")] * half]
    return [
        StyledRow(left=(*_meaning(key, f"{meaning:<{COLUMN - 5}}"), *_meaning(*right[number])))
        for number, (key, meaning) in enumerate(keys[:half])
    ]


def _meaning(key: str, meaning: str) -> tuple[Span, ...]:
    return ((f" {key:<2}  ", "bold"), (meaning, ""))


def _hints() -> StyledRow:
    return StyledRow(
        groups=tuple(
            ((f"{'  ' if number else ' '}{key}", "bold"), (f" {hint}", "dim"))
            for number, (key, hint) in enumerate(HINTS.items())
        )
    )


def _filter(lane: LaneState, look: ViewState) -> StyledRow:
    known = lane.knowledge.tests
    count_of = sum(is_matched(test, look.filter) for test in known) if look.filter else len(known)
    keys = "enter keeps it · esc clears it" if look.is_typing else "r runs them · / another · esc clears it"
    return StyledRow(
        left=((" /", "bold yellow"), (look.filter, "bold"), ("▏" if look.is_typing else "", "yellow")),
        right=((f" {keys} ", "dim"), (f" {count_of} of {len(known)} tests ", "")),
    )
