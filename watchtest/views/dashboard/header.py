"""The upper rows of the dashboard: the verdict with its code and age, the other lanes, the current activity. Pure."""

from __future__ import annotations

from typing import assert_never

from watchtest.core.model import Policy, Verdict
from watchtest.core.state import (
    Broken,
    BuildFailed,
    Executing,
    Idle,
    LaneState,
    Starting,
    State,
    Stopped,
    Syncing,
    Working,
)
from watchtest.core.text import age, count, duration, short, tests
from watchtest.views import words
from watchtest.views.dashboard.styled_rows import Span, StyledRow, text_row, wrapping_row
from watchtest.views.eta import eta_s
from watchtest.views.mood import Colour, mood

BANDS = {
    Colour.GREEN: "bold black on green",
    Colour.RED: "bold white on red",
    Colour.AMBER: "bold black on yellow",
    Colour.GREY: "bold white on bright_black",
}
STYLES = {Colour.GREEN: "green", Colour.RED: "red", Colour.AMBER: "yellow", Colour.GREY: "dim"}
SHOWN_ETA_S = 1.0
"""A shorter remaining time is not shown."""
NOTE_S = 60.0
"""How long a note is shown at least."""
NOTES_SHOWN = 3


def header_rows(state: State, now: float, title: str, notes: int = NOTES_SHOWN) -> list[StyledRow]:
    """Return the header with at most `notes` of the latest notes."""
    lane = state.top
    others = [_other_lane(other, now) for other in state.lanes.values() if other is not lane]
    return [_band(lane, now, title), *others, *_activity(lane, now), *_notes(state, now)[-notes:]]


def _band(lane: LaneState, now: float, title: str) -> StyledRow:
    colour, text = mood(lane).colour, words.standing(lane)
    if colour in (Colour.GREEN, Colour.RED) and lane.knowledge.verdict is not Verdict.ERROR:
        text = text.replace(lane.knowledge.verdict, lane.knowledge.verdict.upper(), 1)
    return StyledRow(
        left=((f" {text} ", ""),),
        right=_edge(title, lane.lane.value, _code(lane), _age(lane, now)),
        band=BANDS[colour],
    )


def _edge(*parts: str, style: str = "") -> tuple[Span, ...]:
    """Return parts for the right edge. The last is the most important: a narrow screen drops the first ones."""
    shown = [part for part in parts if part]
    return tuple((f"{part} · " if part is not shown[-1] else f"{part} ", style) for part in shown)


def _age(lane: LaneState, now: float) -> str:
    return age(now - lane.knowledge.at) if lane.knowledge.at is not None else ""


def _code(lane: LaneState) -> str:
    snapshot = lane.knowledge.snapshot
    if snapshot is None:
        return ""
    branch = f" on {short(snapshot.branch, 30)}" if snapshot.branch else ""
    return short(snapshot.id) + branch + ("*" if snapshot.dirty else "")


def _other_lane(lane: LaneState, now: float) -> StyledRow:
    activities = {Working: "running", Broken: "degraded", Starting: "starting", Stopped: "stopped"}
    activity = "paused" if lane.is_paused else activities.get(type(lane.activity), "")
    return StyledRow(
        left=((f" {lane.lane.value:<7}", "bold"), (words.standing(lane), STYLES[mood(lane).colour])),
        right=_edge(_code(lane), _age(lane, now), activity or lane.waits_for, style="dim"),
    )


def _activity(lane: LaneState, now: float) -> list[StyledRow]:
    rows = [_current_activity(lane, now)]
    if lane.provisional is not None and lane.provisional.hint:
        rows.append(wrapping_row(f"provisional: {lane.provisional.hint}", "yellow"))
    has_failed_build = isinstance(lane.activity, Idle) and isinstance(lane.build, BuildFailed)
    if lane.problem and (isinstance(lane.activity, Working) or has_failed_build):
        rows.append(wrapping_row(words.problem(lane.problem), "magenta"))
    if lane.problem and lane.problem.hint:
        rows.append(wrapping_row(lane.problem.hint, "yellow"))
    if isinstance(lane.activity, Broken):
        rows.append(text_row(words.retry(lane.activity, now), "dim"))
    if lane.notes.current:
        rows.append(text_row(lane.notes.current, "dim"))
    if lane.pending:
        is_held = isinstance(lane.activity, Idle) and lane.activity.is_held
        until = " (until the next save or command)" if is_held else ""
        rows.append(text_row(f"{words.pending(lane.pending)}{until}", "yellow"))
    if lane.queue:
        rows.append(text_row(f"{count(len(lane.queue.waiting), 'run')} queued", "yellow"))
    return rows


def _notes(state: State, now: float) -> list[StyledRow]:
    """Return the recent notes of all lanes. A note is shown for a minute, and until the next run of its lane."""
    recent = [
        (note.at, note.text, lane)
        for lane in state.ranked
        for note in lane.notes.kept
        if now - note.at < NOTE_S or note.at >= _last_start(lane)
    ]
    recent.sort(key=lambda note: note[0])
    return [
        wrapping_row(text if lane is state.top else f"{lane.lane.value}: {text}", "dim") for _, text, lane in recent
    ]


def _last_start(lane: LaneState) -> float:
    """Return when the current run started, or the last one."""
    if isinstance(lane.activity, Working):
        return lane.activity.since
    return lane.runs.last.started_at if lane.runs.last else float("-inf")


def _current_activity(lane: LaneState, now: float) -> StyledRow:
    activity = lane.activity
    match activity:
        case Starting():
            return text_row("starting", "bold")
        case Idle():
            return text_row("paused: press p to resume", "bold yellow") if lane.is_paused else _waiting(lane)
        case Working():
            return _working(lane, activity, now)
        case Broken(problem=problem):
            return wrapping_row(words.problem(problem), "bold magenta")
        case Stopped():
            return text_row("stopped", "dim")
        case _:
            assert_never(activity)


def _waiting(lane: LaneState) -> StyledRow:
    """Return the idle row, with the number of tests that ran for the verdict if a selection left some out."""
    run, rerun = lane.knowledge.run, words.rerun_count(lane.knowledge)
    ran = ""
    if run and rerun is not None:
        ran = f" · {tests(rerun) if rerun else 'no test'} had to run: {run.selection.because}"
    return StyledRow(left=((" waiting for a change", "dim"), (_mode(lane), "yellow"), (ran, "dim")))


def _mode(lane: LaneState) -> str:
    """Return what a save runs, if the user has changed that."""
    override = lane.policy_override
    if override is Policy.FAILED:
        return " · failed tests only"
    return f" · runs {override.value} tests" if override else ""


def _working(lane: LaneState, working: Working, now: float) -> StyledRow:
    share, left = None, ""
    match working.phase:
        case Syncing():
            doing = f"syncing to run {words.intent(working.run)}"
        case Executing(promised=promised, results=results, confirming=confirming) if promised:
            doing, share = f"running {len(results)}/{len(promised)}", min(len(results) / len(promised), 1.0)
            doing += " · confirming in a fresh process" if confirming else ""
            eta = eta_s(lane, now)
            left = f"about {duration(eta)} left · " if eta is not None and eta >= SHOWN_ETA_S else ""
        case Executing():
            doing = "collecting tests"
        case _:
            assert_never(working.phase)
    stopping = f" · stopping ({working.stop.reason.value})" if working.stop else ""
    stopping += " · then paused" if lane.is_paused and not working.stop else ""
    return StyledRow(
        left=((f" {doing}{stopping} ", "bold cyan"),),
        right=((f" {left}", "dim"), (f"{duration(now - working.since)} ", "dim")),
        bar=share,
        bar_style=STYLES[mood(lane).colour],
    )
