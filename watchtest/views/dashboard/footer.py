"""The lower rows of the dashboard: an open panel, the box and its services, the last runs, and the keys. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from watchtest.core.model import Only, RunState
from watchtest.core.policy import is_matched
from watchtest.core.state import LaneState, Syncing, Working
from watchtest.core.text import count, tests
from watchtest.views import words
from watchtest.views.dashboard.actions import FOOTER_ORDER, KEYS
from watchtest.views.dashboard.navigation import ViewState
from watchtest.views.dashboard.styled_rows import Span, StyledRow, text_row
from watchtest.views.mood import Colour, mood

RUN_SIGNS = {
    RunState.PASSED: ("✔", "green"),
    RunState.FAILED: ("✘", "red"),
    RunState.ERROR: ("E", "red"),
    RunState.TIMED_OUT: ("T", "red"),
    RunState.NO_TESTS: ("○", "yellow"),
    RunState.BROKEN: ("!", "magenta"),
}
COLUMN_WIDTH = 30


def footer_rows(lane: LaneState, view: ViewState, room: int) -> list[StyledRow]:
    """Return the open panel in at most `room` rows, and the few rows that are always there."""
    rows = _why(lane, room) if view.panel == "why" else _help(room) if view.panel == "help" else []
    if lane.box.info:
        # The lack of isolation has to be readable to its end; other text is cut if there is no room.
        is_long = bool(lane.box.info.isolation)
        rows.append(StyledRow(left=((" box  ", "dim"), (words.box(lane.box.info), "")), wraps=is_long))
    if lane.box.services:
        rows.append(StyledRow(left=((" serv ", "dim"), (words.services(lane.box.services), _services_style(lane)))))
    if lane.runs.recent_states:
        rows.append(
            StyledRow(left=((" runs ", "dim"), *_runs(lane)), right=((f"{count(lane.runs.started, 'run')} ", "dim"),))
        )
    return [*rows, _filter(lane, view) if view.is_typing or view.filter else _keys()]


def _runs(lane: LaneState) -> Iterator[Span]:
    """Yield a sign for each of the last runs, and one for the current run if it has failures that do not count yet."""
    colour = mood(lane).colour
    for state in lane.runs.recent_states:
        sign, style = RUN_SIGNS.get(state, ("·", "dim"))
        yield sign, style if style != "green" or colour is Colour.GREEN else "dim"
    if colour is Colour.AMBER and isinstance(lane.activity, Working):
        yield "?", "yellow"


def _services_style(lane: LaneState) -> str:
    states = {service.state for service in lane.box.services}
    return "bold magenta" if "failed" in states else "yellow" if states - {"ready"} else ""


def _why(lane: LaneState, room: int) -> list[StyledRow]:
    """Return the reasons for the selection of the current run, or of the last one with a verdict."""
    run = lane.activity.run if isinstance(lane.activity, Working) else lane.knowledge.run
    if run is None:
        return [text_row("why: nothing has run yet")]
    is_open = isinstance(lane.activity, Working) and isinstance(lane.activity.phase, Syncing)
    rows = [text_row(f"why {words.intent(run) if is_open else words.selection(run.selection)}", "bold")]
    reasons = run.selection.reasons if isinstance(run.selection, Only) else ()
    rows += [text_row(f"  {reason}") for reason in reasons]
    if len(rows) <= room:
        return rows
    return [*rows[: max(room - 1, 0)], text_row(f"  and {len(rows) - room + 1} more", "dim")]


def _help(room: int) -> list[StyledRow]:
    """Return one row per key, or two columns if there is too little room."""
    keys = [(binding.label, binding.help) for binding in KEYS]
    if len(keys) <= room:
        return [StyledRow(left=_key_help(*key)) for key in keys]
    half = (len(keys) + 1) // 2
    right = [*keys[half:], *[("", "")] * half]
    return [
        StyledRow(left=(*_key_help(label, f"{text:<{COLUMN_WIDTH - 5}}"), *_key_help(*right[number])))
        for number, (label, text) in enumerate(keys[:half])
    ]


def _key_help(label: str, text: str) -> tuple[Span, ...]:
    return ((f" {label:<2}  ", "bold"), (text, ""))


def _keys() -> StyledRow:
    actions = {binding.label: binding.action for binding in KEYS}
    return StyledRow(
        groups=tuple(
            ((f"{'  ' if number else ' '}{label}", "bold"), (f" {actions[label]}", "dim"))
            for number, label in enumerate(FOOTER_ORDER)
        )
    )


def _filter(lane: LaneState, view: ViewState) -> StyledRow:
    known = lane.knowledge.tests
    matches = sum(is_matched(test, view.filter) for test in known) if view.filter else len(known)
    keys = "enter keep · esc clear" if view.is_typing else "r run these · / new filter · esc clear"
    return StyledRow(
        left=((" /", "bold yellow"), (view.filter, "bold"), ("▏" if view.is_typing else "", "yellow")),
        right=((f" {keys} ", "dim"), (f" {matches} of {tests(len(known))} ", "")),
    )
