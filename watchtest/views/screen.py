"""What the dashboard says, row by row, for a screen of a given height. Pure, and knows no terminal library.

band       the verdict, its code and its age
lanes      the other lanes, a row each
activity   what goes on now, what waits, what is wrong
body       failures: those of the current run first; or the end of an output that could not be read
foot       box, last runs, keys
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from watchtest.core.model import Only, Outcome, Result, RunState, Verdict
from watchtest.core.state import (
    Broken,
    Executing,
    Idle,
    KnownTest,
    LaneState,
    Starting,
    State,
    Stopped,
    Syncing,
    Working,
)
from watchtest.views import words
from watchtest.views.keys import HELP, HINTS
from watchtest.views.text import age, count, cut, duration, short, tail

Panel = Literal["", "help", "why"]
"""What is shown above the last rows."""
Span = tuple[str, str]
"""A text and its style, in rich's words."""

SIGNS = {Verdict.PASSED: "✔", Verdict.FAILED: "✘", Verdict.ERROR: "✘", Verdict.NO_TESTS: "○", Verdict.UNKNOWN: "?"}
BANDS = {
    Verdict.PASSED: "bold black on green",
    Verdict.FAILED: "bold white on red",
    Verdict.ERROR: "bold white on red",
    Verdict.NO_TESTS: "bold black on yellow",
    Verdict.UNKNOWN: "bold white on bright_black",
}
STRIP = {
    RunState.PASSED: ("✔", "green"),
    RunState.FAILED: ("✘", "red"),
    RunState.ERROR: ("E", "red"),
    RunState.TIMED_OUT: ("T", "red"),
    RunState.NO_TESTS: ("○", "yellow"),
    RunState.BROKEN: ("!", "magenta"),
}
BLOCK_LINES = 12
"""The most rows for one failure."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the screen: text from the left, parts at the right edge as far as they fit, a bar in between."""

    left: tuple[Span, ...] = ()
    right: tuple[Span, ...] = ()
    band: str = ""
    bar: float | None = None
    """How much of the space in between is done."""


@dataclass(frozen=True, slots=True)
class Block:
    """One failure: where it is, its line of source, what it says."""

    head: Row
    source: Row | None = None
    message: tuple[Row, ...] = ()

    def __len__(self) -> int:
        return 1 + (self.source is not None) + len(self.message)

    def rows(self, depth: int) -> list[Row]:
        """The most telling `depth` rows: what it says goes before the line that says it."""
        source = [self.source] if self.source and (depth > 2 or not self.message) else []
        return [self.head, *source, *self.message[: max(depth - 1 - len(source), 0)]][:depth]


def rows(state: State, *, now: float, height: int, title: str = "", panel: Panel = "") -> list[Row]:
    """The rows of a screen of `height`; never more."""
    lane = state.top
    head = [_band(lane, now, title)]
    head += [_other(other, now) for other in state.lanes.values() if other is not lane]
    head += _activity(lane, now)
    foot = _foot(lane, panel, max(height - len(head) - 6, 0))
    gap = [Row()] if height >= 20 else []
    room = height - len(head) - len(foot) - 2 * len(gap)
    body = _body(lane, max(room, 0))
    filling = [Row()] * (room - len(body))
    return [*head, *gap, *body, *filling, *gap, *foot][:height]


# -- head ------------------------------------------------------------------------------------------


def _band(lane: LaneState, now: float, title: str) -> Row:
    knowledge = lane.knowledge
    word, _, rest = words.verdict(knowledge).partition(" ")
    is_plain = knowledge.verdict in (Verdict.PASSED, Verdict.FAILED)
    says = f"{word.upper()} {rest}" if is_plain else words.verdict(knowledge)
    return Row(
        left=((f" {SIGNS[knowledge.verdict]} {says} ", ""),),
        right=_edge(title, lane.lane.value, _code(lane), _age(lane, now)),
        band=BANDS[knowledge.verdict],
    )


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


def _other(lane: LaneState, now: float) -> Row:
    said = f"{SIGNS[lane.knowledge.verdict]} {words.verdict(lane.knowledge)}"
    style = "red" if lane.knowledge.verdict.is_red else "green" if lane.knowledge.verdict is Verdict.PASSED else "dim"
    doing = {Working: "running", Broken: "degraded", Starting: "starting", Stopped: "stopped"}
    word = "paused" if lane.is_paused else doing.get(type(lane.activity), "")
    return Row(
        left=((f" {lane.lane.value:<7}", "bold"), (said, style)),
        right=_edge(_code(lane), _age(lane, now), word or lane.waits_for, style="dim"),
    )


def _activity(lane: LaneState, now: float) -> list[Row]:
    said = [_doing(lane, now)]
    if isinstance(lane.activity, Working) and lane.problem:
        said.append(_plain(words.problem(lane.problem), "magenta"))
    if lane.problem and lane.problem.hint:
        said.append(_plain(lane.problem.hint, "yellow"))
    if isinstance(lane.activity, Broken):
        said.append(_plain(words.retry(lane.activity, now), "dim"))
    if lane.note:
        said.append(_plain(lane.note, "dim"))
    if lane.pending:
        waits = " (waits for the next save or command)" if _is_held(lane) else ""
        said.append(_plain(f"pending {words.changes(lane.pending)}{waits}", "yellow"))
    if lane.asked:
        said.append(_plain(f"{count(len(lane.asked), 'run')} asked for and not begun yet", "yellow"))
    return said


def _doing(lane: LaneState, now: float) -> Row:
    activity = lane.activity
    match activity:
        case Starting():
            return _plain("starting", "bold")
        case Idle():
            return _plain("paused: press p to go on" if lane.is_paused else f"waiting for a change{_last(lane)}", "dim")
        case Working():
            return _working(activity, now, lane.is_paused)
        case Broken(problem=problem):
            return _plain(words.problem(problem), "bold magenta")
        case Stopped():
            return _plain("stopped", "dim")
        case _:
            assert_never(activity)


def _last(lane: LaneState) -> str:
    """What the verdict rests on, where not everything had to run for it."""
    run, fresh = lane.knowledge.run, words.fresh(lane.knowledge)
    return f" · {fresh or 'no'} tests had to run: {run.selection.because}" if run and fresh is not None else ""


def _working(working: Working, now: float, is_paused: bool) -> Row:
    share = None
    match working.phase:
        case Syncing():
            doing = f"syncing for {words.intent(working.run)}"
        case Executing(promised=promised, results=results) if promised:
            doing, share = f"running {len(results)}/{len(promised)}", min(len(results) / len(promised), 1.0)
        case Executing():
            doing = "collecting"
        case _:
            assert_never(working.phase)
    stopping = f" · stopping ({working.stop.value})" if working.stop else ""
    stopping += " · then paused" if is_paused and not working.stop else ""
    return Row(
        left=((f" {doing}{stopping} ", "bold cyan"),),
        right=((f" {duration(now - working.since)} ", "dim"),),
        bar=share,
    )


def _is_held(lane: LaneState) -> bool:
    return isinstance(lane.activity, Idle) and lane.activity.is_held


def _plain(text: str, style: str) -> Row:
    return Row(left=((f" {cut(text, 500)}".replace("\n", " "), style),))


# -- body ------------------------------------------------------------------------------------------


def _body(lane: LaneState, room: int) -> list[Row]:
    blocks = _blocks(lane)
    if not blocks and lane.knowledge.verdict is Verdict.ERROR and lane.last:
        raw = tail(lane.last.raw_output, max(room - 1, 0)) if room > 1 else ()
        return [Row(left=((" the end of the output:", "bold"),)), *(_plain(f"  {line}", "") for line in raw)][:room]
    return _fitted(blocks, room)


def _fitted(blocks: list[Block], room: int) -> list[Row]:
    """As much of each block as there is room for: the same depth for all, what is left over for the first ones."""
    if len(blocks) > room:
        shown = max(room - 1, 0)
        return [*(block.head for block in blocks[:shown]), _plain(f"and {len(blocks) - shown} more", "dim")][:room]
    depth = 1
    while depth < BLOCK_LINES and sum(min(len(block), depth + 1) for block in blocks) <= room:
        depth += 1
    spare = room - sum(min(len(block), depth) for block in blocks)
    fitted: list[Row] = []
    for block in blocks:
        extra = min(spare, max(len(block) - depth, 0))
        spare -= extra
        fitted += block.rows(depth + extra)
    return fitted


def _blocks(lane: LaneState) -> list[Block]:
    match lane.activity:
        case Working(phase=Executing(results=live)):
            pass
        case _:
            live = {}
    red = lane.knowledge.red
    was_red = {known.result.test for known in red}
    # The last verdict stands until the next one: a test that it calls red stays, with what this run says of it.
    waiting = sorted((known for known in red if known.result.test not in live), key=_rank)
    healed = [live[test] for test in was_red & live.keys() if not live[test].outcome.is_red]
    return [
        *(_block(one, "again" if one.test in was_red else "new") for one in live.values() if one.outcome.is_red),
        *(_block(known.result, "new" if known.is_new else "") for known in waiting),
        *(Block(_headline(one, "✔", "green", "passes now")) for one in sorted(healed, key=lambda one: one.test)),
    ]


def _rank(known: KnownTest) -> tuple[bool, str, int, str]:
    """New failures first, then as they stand in the files."""
    where = known.result.failure.where if known.result.failure else None
    return (not known.is_new, where.file if where else "", where.line if where else 0, known.result.test)


def _block(result: Result, mark: str) -> Block:
    head = _headline(result, "E" if result.outcome is Outcome.ERROR else "✘", "red", mark)
    failure = result.failure
    if failure is None:
        return Block(head)
    source = (failure.source_line or "").strip()
    message = cut(failure.message, 2000).expandtabs(4).split("\n")
    return Block(
        head,
        _inner(f"> {source}", "") if source else None,
        tuple(_inner(line, "red") for line in message if line.strip())[:BLOCK_LINES],
    )


def _headline(result: Result, sign: str, style: str, mark: str) -> Row:
    where = words.place(result.failure)
    return Row(
        left=(
            (f" {sign} ", f"bold {style}"),
            (f"{where}  " if where else "", "cyan"),
            (words.name(result.test), "bold"),
            (f"  {mark}" if mark else "", "yellow"),
        )
    )


def _inner(text: str, style: str) -> Row:
    return Row(left=((f"     {cut(text, 500)}", style),))


# -- foot ------------------------------------------------------------------------------------------


def _health(lane: LaneState) -> str:
    states = {service.state for service in lane.services}
    return "bold magenta" if "failed" in states else "yellow" if states - {"ready"} else ""


def _why(lane: LaneState, room: int) -> list[Row]:
    """What the run under way was chosen for, or the last one that was judged."""
    run = lane.activity.run if isinstance(lane.activity, Working) else lane.knowledge.run
    if run is None:
        return [_plain("why: nothing has run yet", "")]
    said = [_plain(f"why {words.intent(run)}", "bold")]
    reasons = run.selection.reasons if isinstance(run.selection, Only) else ()
    said += [_plain(f"  {reason}", "") for reason in reasons]
    return (
        said if len(said) <= room else [*said[: max(room - 1, 0)], _plain(f"  and {len(said) - room + 1} more", "dim")]
    )


def _foot(lane: LaneState, panel: Panel, room: int) -> list[Row]:
    foot = _why(lane, room) if panel == "why" else []
    if panel == "help":
        foot += [Row(left=((f" {key}  ", "bold"), (meaning, ""))) for key, meaning in HELP.items()]
    if lane.box:
        foot.append(Row(left=((" box  ", "dim"), (words.box(lane.box), ""))))
    if lane.services:
        foot.append(Row(left=((" serv ", "dim"), (words.services(lane.services), _health(lane)))))
    if lane.strip:
        signs = (STRIP.get(state, ("·", "dim")) for state in lane.strip)
        foot.append(Row(left=((" runs ", "dim"), *signs), right=((f"{count(lane.runs, 'run')} ", "dim"),)))
    if panel != "help":
        hints = [span for key, hint in HINTS.items() for span in ((f"  {key}", "bold"), (f" {hint}", "dim"))]
        foot.append(Row(left=((" q", "bold"), *hints[1:])))
    return foot
