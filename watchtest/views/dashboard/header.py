"""The upper rows of the dashboard: the verdict with its code and age, the other lanes, and what goes on. Pure."""

from __future__ import annotations

from typing import assert_never

from watchtest.core.model import Policy, Verdict
from watchtest.core.state import Broken, Executing, Idle, LaneState, Starting, State, Stopped, Syncing, Working
from watchtest.core.text import age, count, duration, short
from watchtest.views import words
from watchtest.views.dashboard.styled_rows import Span, StyledRow, text_row, wrapping_row
from watchtest.views.words import eta_s

SIGNS = {Verdict.PASSED: "✔", Verdict.FAILED: "✘", Verdict.ERROR: "✘", Verdict.NO_TESTS: "○", Verdict.UNKNOWN: "?"}
BANDS = {
    Verdict.PASSED: "bold black on green",
    Verdict.FAILED: "bold white on red",
    Verdict.ERROR: "bold white on red",
    Verdict.NO_TESTS: "bold black on yellow",
    Verdict.UNKNOWN: "bold white on bright_black",
}
STALE_GREEN = "bold green on bright_black"
"""Green, of code that is not there any more: not the colour that one looks for."""
SHOWN_ETA_S = 1.0
NOTE_S = 60.0
NOTES_SHOWN = 3


def header_rows(state: State, now: float, title: str, notes: int = NOTES_SHOWN) -> list[StyledRow]:
    """`notes`: so many of the things that were said once have room."""
    lane = state.top
    others = [_other(other, now) for other in state.lanes.values() if other is not lane]
    return [_band(lane, now, title), *others, *_activity(lane, now), *_notes(state, now)[-notes:]]


def _band(lane: LaneState, now: float, title: str) -> StyledRow:
    knowledge = lane.knowledge
    word, _, rest = words.verdict(knowledge).partition(" ")
    is_plain = knowledge.verdict in (Verdict.PASSED, Verdict.FAILED)
    says = f"{word.upper()} {rest}" if is_plain else words.verdict(knowledge)
    return StyledRow(
        left=((f" {SIGNS[knowledge.verdict]} {says} ", ""),),
        right=_edge(title, lane.lane.value, _code(lane), _age(lane, now)),
        band=STALE_GREEN if _is_old_green(lane) else BANDS[knowledge.verdict],
    )


def _is_old_green(lane: LaneState) -> bool:
    """Nobody is on the way to a verdict on what has changed since, or nobody can be. A run that is soon has one."""
    if lane.knowledge.verdict is not Verdict.PASSED:
        return False
    is_at_work = isinstance(lane.activity, Working) and lane.problem is None
    return isinstance(lane.activity, Broken) or (not is_at_work and bool(lane.pending or lane.problem))


def _edge(*parts: str, style: str = "") -> tuple[Span, ...]:
    """Parts for the right edge, the last the most important: a narrow screen drops them from the first on."""
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


def _other(lane: LaneState, now: float) -> StyledRow:
    said = f"{SIGNS[lane.knowledge.verdict]} {words.verdict(lane.knowledge)}"
    is_green = lane.knowledge.verdict is Verdict.PASSED and not _is_old_green(lane)
    style = "red" if lane.knowledge.verdict.is_red else "green" if is_green else "dim"
    doing = {Working: "running", Broken: "degraded", Starting: "starting", Stopped: "stopped"}
    word = "paused" if lane.is_paused else doing.get(type(lane.activity), "")
    return StyledRow(
        left=((f" {lane.lane.value:<7}", "bold"), (said, style)),
        right=_edge(_code(lane), _age(lane, now), word or lane.waits_for, style="dim"),
    )


def _activity(lane: LaneState, now: float) -> list[StyledRow]:
    said = [_doing(lane, now)]
    if isinstance(lane.activity, Working) and lane.problem:
        said.append(wrapping_row(words.problem(lane.problem), "magenta"))
    if lane.problem and lane.problem.hint:
        said.append(wrapping_row(lane.problem.hint, "yellow"))
    if isinstance(lane.activity, Broken):
        said.append(text_row(words.retry(lane.activity, now), "dim"))
    if lane.notes.current:
        said.append(text_row(lane.notes.current, "dim"))
    if lane.pending:
        waits = " (waits for the next save or command)" if _is_held(lane) else ""
        said.append(text_row(f"pending {words.changes(lane.pending)}{waits}", "yellow"))
    if lane.queue:
        said.append(text_row(f"{count(len(lane.queue.waiting), 'run')} asked for and not begun yet", "yellow"))
    return said


def _notes(state: State, now: float) -> list[StyledRow]:
    """What was said of late, in any lane: for a while, and until the next run of its lane."""
    recent = [
        (note.at, note.text, lane)
        for lane in state.ranked
        for note in lane.notes.kept
        if now - note.at < NOTE_S or note.at >= _begun_at(lane)
    ]
    recent.sort(key=lambda said: said[0])
    return [
        wrapping_row(text if lane is state.top else f"{lane.lane.value}: {text}", "dim") for _, text, lane in recent
    ]


def _begun_at(lane: LaneState) -> float:
    """The last run, or the one under way."""
    if isinstance(lane.activity, Working):
        return lane.activity.since
    return lane.runs.last.started_at if lane.runs.last else float("-inf")


def _doing(lane: LaneState, now: float) -> StyledRow:
    activity = lane.activity
    match activity:
        case Starting():
            return text_row("starting", "bold")
        case Idle():
            return text_row("paused: press p to go on", "bold yellow") if lane.is_paused else _waiting(lane)
        case Working():
            return _working(lane, activity, now)
        case Broken(problem=problem):
            return wrapping_row(words.problem(problem), "bold magenta")
        case Stopped():
            return text_row("stopped", "dim")
        case _:
            assert_never(activity)


def _waiting(lane: LaneState) -> StyledRow:
    """With what the verdict rests on, where not everything had to run for it."""
    run, fresh = lane.knowledge.run, words.rerun_count(lane.knowledge)
    rests = f" · {fresh or 'no'} tests had to run: {run.selection.because}" if run and fresh is not None else ""
    return StyledRow(left=((" waiting for a change", "dim"), (_mode(lane), "yellow"), (rests, "dim")))


def _mode(lane: LaneState) -> str:
    """How much a save runs, where that was changed by hand."""
    if lane.policy_override is None:
        return ""
    return " · failed tests only" if lane.policy_override is Policy.FAILED else f" · runs {lane.policy_override.value}"


def _working(lane: LaneState, working: Working, now: float) -> StyledRow:
    share, left = None, ""
    match working.phase:
        case Syncing():
            doing = f"syncing for {words.intent(working.run)}"
        case Executing(promised=promised, results=results) if promised:
            doing, share = f"running {len(results)}/{len(promised)}", min(len(results) / len(promised), 1.0)
            eta = eta_s(lane, now)
            left = f"about {duration(eta)} left · " if eta is not None and eta >= SHOWN_ETA_S else ""
            if len(results) >= len(promised) and any(result.outcome.is_red for result in results.values()):
                doing += " · making sure of what failed"  # in a fresh process, where the first was a warm one
        case Executing():
            doing = "collecting"
        case _:
            assert_never(working.phase)
    stopping = f" · stopping ({working.stop.reason.value})" if working.stop else ""
    stopping += " · then paused" if lane.is_paused and not working.stop else ""
    return StyledRow(
        left=((f" {doing}{stopping} ", "bold cyan"),),
        right=((f" {left}", "dim"), (f"{duration(now - working.since)} ", "dim")),
        bar=share,
    )


def _is_held(lane: LaneState) -> bool:
    return isinstance(lane.activity, Idle) and lane.activity.is_held
