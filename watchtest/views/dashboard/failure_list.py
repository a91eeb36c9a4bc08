"""The middle rows of the dashboard: what is red, as much of each as there is room for; with a filter, all that match.

Failures of the run under way come first; the last verdict's stand until the next one exists. Pure.

All that a run has said, as one harmless text for a pager: each failure whole, with its output. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from watchtest.core.model import Location, Outcome, Result, Verdict
from watchtest.core.policy import is_matched
from watchtest.core.state import Broken, Executing, KnownTest, LaneState, Working
from watchtest.core.text import clean, cut, duration, tail
from watchtest.views import words
from watchtest.views.dashboard.navigation import NOTHING_CHOSEN, ViewState
from watchtest.views.dashboard.styled_rows import StyledRow, indented_row, text_row

BLOCK_LINES = 12
"""The most rows for one failure that was not chosen."""
CHOSEN_LINES = 80
SIGNS = {
    Outcome.PASSED: ("✔", "green"),
    Outcome.SKIPPED: ("○", "yellow"),
    Outcome.XFAILED: ("x", "yellow"),
    Outcome.XPASSED: ("X", "yellow"),
    Outcome.FAILED: ("✘", "red"),
    Outcome.ERROR: ("E", "red"),
}


@dataclass(frozen=True, slots=True)
class ScreenContext:
    """What the state does not know: where the workspace is, and which tests are red or green by chance."""

    root: str = ""
    flaky: frozenset[str] = frozenset()


@dataclass(frozen=True)
class FailureBlock:
    """One failure: where it is, its line of source, what it says. Worded when it is looked at: there may be thousands,
    and a screen is drawn several times a second."""

    result: Result
    mark: str
    around: ScreenContext
    is_healed: bool = False
    """It was red, and has passed in the run under way: that is all there is to say."""

    @cached_property
    def head(self) -> StyledRow:
        sign, style = SIGNS[self.result.outcome]
        return _headline(self.result, sign, style, self.mark, self.around)

    @cached_property
    def source(self) -> StyledRow | None:
        failure = None if self.is_healed else self.result.failure
        source = (failure.source_line or "").strip() if failure else ""
        return indented_row(f"> {source}") if source else None

    @cached_property
    def message(self) -> tuple[StyledRow, ...]:
        failure = None if self.is_healed else self.result.failure
        lines = cut(failure.message, 8000).expandtabs(4).split("\n") if failure else []
        said = [line for line in lines if line.strip()]
        return tuple(indented_row(line, _colour(line)) for line in said[:CHOSEN_LINES])

    def __len__(self) -> int:
        return 1 + (self.source is not None) + len(self.message)

    def rows(self, depth: int) -> list[StyledRow]:
        """The most telling `depth` rows: what it says goes before the line that says it."""
        source = [self.source] if self.source and (depth > 2 or not self.message) else []
        return [self.head, *source, *self.message[: max(depth - 1 - len(source), 0)]][:depth]


def failure_rows(lane: LaneState, look: ViewState, room: int, around: ScreenContext) -> list[StyledRow]:
    blocks = _blocks(lane, look, around)
    if look.filter:
        return _listed(lane, look, blocks, room)
    if isinstance(lane.activity, Broken):
        said = _below(lane.activity.problem.message, room // 2 if blocks else room)
        return [*said, *_fitted(blocks, room - len(said), look.chosen)]
    if not blocks and lane.knowledge.verdict is Verdict.ERROR and lane.runs.last:
        raw = tail(lane.runs.last.raw_output, max(room - 1, 0)) if room > 1 else ()
        return [StyledRow(left=((" the end of the output:", "bold"),)), *(text_row(f"  {line}") for line in raw)][:room]
    return _fitted(blocks, room, look.chosen)


def _below(message: str, room: int) -> list[StyledRow]:
    """What stands below the first line of a problem: the end of what a failed command has said."""
    _, _, rest = message.strip().partition("\n")
    lines = tail(rest, min(room, BLOCK_LINES)) if rest and room > 0 else ()
    return [indented_row(line, "magenta") for line in lines]


def selectable_failures(lane: LaneState, look: ViewState) -> tuple[Result, ...]:
    """The failures that can be chosen from, in the order in which they are shown."""
    return tuple(block.result for block in _blocks(lane, look, ScreenContext()) if block.result.outcome.is_red)


# -- as much as there is room for ------------------------------------------------------------------


def _fitted(blocks: Sequence[FailureBlock], room: int, chosen: int = NOTHING_CHOSEN) -> list[StyledRow]:
    """As much of each block as there is room for: the same depth for all, what is left over for the first ones."""
    if blocks and chosen != NOTHING_CHOSEN:
        return _around(blocks, room, min(chosen, len(blocks) - 1))
    if len(blocks) > room:
        shown = max(room - 1, 0)
        return [*(block.head for block in blocks[:shown]), text_row(f"and {len(blocks) - shown} more", "dim")][:room]
    depth = 1
    while depth < BLOCK_LINES and sum(min(len(block), depth + 1) for block in blocks) <= room:
        depth += 1
    spare = room - sum(min(len(block), depth) for block in blocks)
    fitted: list[StyledRow] = []
    for block in blocks:
        extra = min(spare, max(len(block) - depth, 0))
        spare -= extra
        fitted += block.rows(depth + extra)
    return fitted


def _around(blocks: Sequence[FailureBlock], room: int, chosen: int) -> list[StyledRow]:
    """The chosen one at length, of the others their first rows: those before it, and those after, as many as fit."""
    depth = min(len(blocks[chosen]), max(room - len(blocks) + 1, room * 2 // 3, 1))
    left = max(room - depth, 0)
    after = min(len(blocks) - chosen - 1, max(left - chosen, left // 2))
    before = min(chosen, left - after)
    own = blocks[chosen].rows(depth)
    marked = StyledRow(left=((" ▸ ", "bold yellow"), *own[0].left[1:]), right=own[0].right)
    rows = [block.head for block in blocks[chosen - before : chosen]]
    rows += [marked, *own[1:]]
    return [*rows, *(block.head for block in blocks[chosen + 1 : chosen + 1 + after])][:room]


def _listed(lane: LaneState, look: ViewState, blocks: Sequence[FailureBlock], room: int) -> list[StyledRow]:
    """With a filter: what matches and is red as ever, and below it the other tests that match, a row each."""
    red = {block.result.test for block in blocks}
    others = sorted(
        (
            known.result
            for test, known in lane.knowledge.tests.items()
            if test not in red and is_matched(test, look.filter)
        ),
        key=lambda result: result.test,
    )
    if not blocks and not others:
        return [text_row(f"no known test has {look.filter!r} in its name", "yellow")][:room]
    above = _fitted(blocks, min(room, max(room // 2, room - len(others))), look.chosen)
    below = [_line(result) for result in others]
    left = room - len(above)
    if len(below) > left:
        below = [*below[: max(left - 1, 0)], text_row(f"and {len(below) - max(left - 1, 0)} more", "dim")]
    return [*above, *below][:room]


# -- failures --------------------------------------------------------------------------------------


def _blocks(lane: LaneState, look: ViewState, around: ScreenContext) -> list[FailureBlock]:
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
    blocks = [
        *(
            FailureBlock(one, "again" if one.test in was_red else "new", around)
            for one in live.values()
            if one.outcome.is_red
        ),
        *(FailureBlock(known.result, "new" if known.is_new else "", around) for known in waiting),
        *(FailureBlock(one, _healed(one), around, is_healed=True) for one in sorted(healed, key=lambda one: one.test)),
    ]
    return [block for block in blocks if not look.filter or is_matched(block.result.test, look.filter)]


def _healed(result: Result) -> str:
    return "passes now" if result.outcome is Outcome.PASSED else f"{result.outcome.value} now"


def _rank(known: KnownTest) -> tuple[bool, str, int, str]:
    """New failures first, then as they stand in the files."""
    where = known.result.failure.where if known.result.failure else None
    return (not known.is_new, where.file if where else "", where.line if where else 0, known.result.test)


def _colour(line: str) -> str:
    """Of a difference, as pytest prints it: what was expected, what came, and where in the line they differ."""
    match line.lstrip()[:2]:
        case "- ":
            return "magenta"
        case "+ ":
            return "green"
        case "? ":
            return "dim"
        case _:
            return "red"


def _headline(result: Result, sign: str, style: str, mark: str, around: ScreenContext) -> StyledRow:
    place = words.location(result.failure)
    marks = " · ".join(word for word in (mark, "flaky" if result.test in around.flaky else "") if word)
    return StyledRow(
        left=(
            (f" {sign} ", f"bold {style}"),
            (f"{place}  " if place else "", f"cyan{_link(result, around.root)}"),
            (words.test_name(result.test), "bold"),
            (f"  {marks}" if marks else "", "yellow"),
        )
    )


def _link(result: Result, root: str) -> str:
    """What makes a terminal open the file at a click, where it can; others show plain text."""
    where = location_of(result)
    if where is None or not root:
        return ""
    try:
        return f" link {PurePath(root, where.file).as_uri()}#{where.line}"
    except ValueError:  # not a path of this system
        return ""


def location_of(result: Result) -> Location | None:
    """Where an editor should open it."""
    return (result.failure.where or result.failure.crash) if result.failure else None


def _line(result: Result) -> StyledRow:
    sign, style = SIGNS[result.outcome]
    return StyledRow(
        left=((f" {sign} ", style), (result.test, "")), right=((f" {duration(result.duration_s)} ", "dim"),)
    )


RULE = "─" * 79
LIMIT = 2_000_000
"""Characters; the rest is in the history. Escaped for the socket, each may take six bytes."""


def output_text(lane: LaneState, look: ViewState) -> str:
    """Of the failure that was chosen; without, of all of them, and what the runner itself has said."""
    results = selectable_failures(lane, look)
    if look.chosen != NOTHING_CHOSEN and results:
        parts: Iterator[str] = _told(results[min(look.chosen, len(results) - 1)])
    else:
        parts = _all(lane, results)
    return _bounded(parts)


def _all(lane: LaneState, results: tuple[Result, ...]) -> Iterator[str]:
    run = f" · run {lane.runs.last.run.id}" if lane.runs.last else ""
    yield f"{words.verdict(lane.knowledge)}{run}\n"
    if lane.problem is not None:
        yield f"\n{RULE}\nno test can be run\n{RULE}\n{lane.problem.message}\n{lane.problem.hint}\n"
    for result in results:
        yield from _told(result)
    if lane.runs.last and lane.runs.last.raw_output:
        yield f"\n{RULE}\nwhat the runner has said\n{RULE}\n{lane.runs.last.raw_output}\n"
    elif not results and lane.problem is None:
        yield "\nNothing is red, and the runner has said nothing that would have to be read.\n"


def _told(result: Result) -> Iterator[str]:
    failure = result.failure
    yield f"\n{RULE}\n{words.failure_line(result)}\n{RULE}\n"
    if failure is None:
        return
    yield f"{failure.text or failure.message}\n"
    if failure.output:
        yield f"\noutput of the test:\n{failure.output}\n"


def _bounded(parts: Iterator[str]) -> str:
    said, left = [], LIMIT
    for part in parts:
        said.append(part[:left])
        left -= len(said[-1])
        if left <= 0:
            said.append("\n… and more, which the history has\n")
            break
    return clean("".join(said))
