"""The middle rows of the dashboard, the failures with as much detail as fits, and their full output for a pager. Pure.

Failures of the current run come first; those of the last verdict stay until there is a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from watchtest.core.model import Location, Outcome, Result, Verdict
from watchtest.core.policy import is_matched
from watchtest.core.state import Broken, KnownTest, LaneState, Working
from watchtest.core.text import EXCERPT_LIMIT, clean, cut, duration, tail
from watchtest.views import words
from watchtest.views.dashboard.navigation import ViewState
from watchtest.views.dashboard.styled_rows import StyledRow, indented_row, text_row
from watchtest.views.mood import Colour, mood

BLOCK_LINES = 12
"""The most rows of a failure that is not selected."""
SELECTED_LINES = 80
SIGNS = {
    Outcome.PASSED: ("✔", "green"),
    Outcome.SKIPPED: ("○", "yellow"),
    Outcome.XFAILED: ("x", "yellow"),
    Outcome.XPASSED: ("X", "yellow"),
    Outcome.FAILED: ("✘", "red"),
    Outcome.ERROR: ("E", "red"),
}
DIFF_COLOURS = {"- ": "magenta", "+ ": "cyan", "? ": "dim"}
"""By the marks with which pytest starts the lines of a diff. Green is the colour of a verdict."""


@dataclass(frozen=True, slots=True)
class ScreenContext:
    """What the state does not contain: the path of the workspace, and the flaky tests."""

    root: str = ""
    flaky: frozenset[str] = frozenset()


@dataclass(frozen=True)
class FailureBlock:
    """One failure: headline, source line and message.

    Its rows are built on first use: there may be thousands of failures, and the screen is drawn several times a second.
    """

    result: Result
    mark: str
    context: ScreenContext
    is_fixed: bool = False
    """It was red and has passed in the current run, so its old message is not shown."""

    @cached_property
    def head(self) -> StyledRow:
        sign, style = SIGNS[self.result.outcome]
        style = "dim" if self.is_fixed else style
        location = words.location(self.result.failure)
        marks = " · ".join(filter(None, (self.mark, "flaky" if self.result.test in self.context.flaky else "")))
        return StyledRow(
            left=(
                (f" {sign} ", f"bold {style}"),
                (f"{location}  " if location else "", f"cyan{_link(self.result, self.context.root)}"),
                (words.test_name(self.result.test), "bold"),
                (f"  {marks}" if marks else "", "yellow"),
            )
        )

    @cached_property
    def source(self) -> StyledRow | None:
        failure = None if self.is_fixed else self.result.failure
        source = (failure.source_line or "").strip() if failure else ""
        return indented_row(f"> {source}") if source else None

    @cached_property
    def message(self) -> tuple[StyledRow, ...]:
        failure = None if self.is_fixed else self.result.failure
        lines = cut(failure.message, EXCERPT_LIMIT).expandtabs(4).split("\n") if failure else []
        shown = [line for line in lines if line.strip()][:SELECTED_LINES]
        return tuple(indented_row(line, DIFF_COLOURS.get(line.lstrip()[:2], "red")) for line in shown)

    def __len__(self) -> int:
        return 1 + (self.source is not None) + len(self.message)

    def rows(self, depth: int) -> list[StyledRow]:
        """Return the `depth` most important rows. The message matters more than the source line."""
        source = [self.source] if self.source and (depth > 2 or not self.message) else []
        return [self.head, *source, *self.message[: max(depth - 1 - len(source), 0)]][:depth]


def failure_rows(lane: LaneState, view: ViewState, room: int, context: ScreenContext) -> list[StyledRow]:
    """Return at most `room` rows."""
    blocks = _blocks(lane, view, context)
    if view.filter:
        return _matches(lane, view, blocks, room)
    if isinstance(lane.activity, Broken):
        output = _command_output(lane.activity.problem.message, room // 2 if blocks else room)
        return [*output, *_fit(blocks, room - len(output), view.selected)]
    if not blocks and lane.knowledge.verdict is Verdict.ERROR and lane.runs.last:
        raw = tail(lane.runs.last.raw_output, room - 1) if room > 1 else ()
        return [text_row("end of the runner's output:", "bold"), *(text_row(f"  {line}") for line in raw)][:room]
    return _fit(blocks, room, view.selected)


def _command_output(message: str, room: int) -> list[StyledRow]:
    """Return the lines of a problem after the first: the end of a failed command's output."""
    _, _, rest = message.strip().partition("\n")
    lines = tail(rest, min(room, BLOCK_LINES)) if rest and room > 0 else ()
    return [indented_row(line, "magenta") for line in lines]


def selectable_failures(lane: LaneState, view: ViewState) -> tuple[Result, ...]:
    """Return the failures that can be selected, in the order in which they are shown."""
    return tuple(block.result for block in _blocks(lane, view, ScreenContext()) if block.result.outcome.is_red)


# -- layout ----------------------------------------------------------------------------------------


def _fit(blocks: Sequence[FailureBlock], room: int, selected: int | None = None) -> list[StyledRow]:
    """Return as much of each block as fits: the same number of rows for all, and the spare rows for the first ones."""
    if blocks and selected is not None:
        return _fit_selected(blocks, room, min(selected, len(blocks) - 1))
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


def _fit_selected(blocks: Sequence[FailureBlock], room: int, selected: int) -> list[StyledRow]:
    """Return the selected block in full, and the headlines of as many blocks before and after it as fit."""
    depth = min(len(blocks[selected]), max(room - len(blocks) + 1, room * 2 // 3, 1))
    left = max(room - depth, 0)
    after = min(len(blocks) - selected - 1, max(left - selected, left // 2))
    before = min(selected, left - after)
    own = blocks[selected].rows(depth)
    marked = StyledRow(left=((" ▸ ", "bold yellow"), *own[0].left[1:]), right=own[0].right)
    rows = [block.head for block in blocks[selected - before : selected]]
    rows += [marked, *own[1:]]
    return [*rows, *(block.head for block in blocks[selected + 1 : selected + 1 + after])][:room]


def _matches(lane: LaneState, view: ViewState, blocks: Sequence[FailureBlock], room: int) -> list[StyledRow]:
    """Return the failures that match the filter, and below them one row for each other test that matches."""
    red = {block.result.test for block in blocks}
    tests = lane.knowledge.tests
    others = sorted(test for test in tests if test not in red and is_matched(test, view.filter))
    if not blocks and not others:
        return [text_row(f"no known test matches {view.filter!r}", "yellow")][:room]
    above = _fit(blocks, min(room, max(room // 2, room - len(others))), view.selected)
    is_green = mood(lane).colour is Colour.GREEN
    below = [_test_row(tests[test].result, is_green) for test in others]
    left = room - len(above)
    if len(below) > left:
        below = [*below[: max(left - 1, 0)], text_row(f"and {len(below) - max(left - 1, 0)} more", "dim")]
    return [*above, *below][:room]


# -- failures --------------------------------------------------------------------------------------


def _blocks(lane: LaneState, view: ViewState, context: ScreenContext) -> list[FailureBlock]:
    live = lane.activity.results if isinstance(lane.activity, Working) else {}
    red = lane.knowledge.red
    was_red = {known.result.test for known in red}
    # The last verdict stands until the next one: its red tests stay on the screen, with their results of this run.
    waiting = sorted((known for known in red if known.result.test not in live), key=_rank)
    fixed = [live[test] for test in was_red & live.keys() if not live[test].outcome.is_red]
    blocks = []
    for result in (result for result in live.values() if result.outcome.is_red):
        blocks.append(FailureBlock(result, "still failing" if result.test in was_red else "new", context))
    for known in waiting:
        blocks.append(FailureBlock(known.result, "new" if known.is_new else "", context))
    for result in sorted(fixed, key=lambda result: result.test):
        word = "passes" if result.outcome is Outcome.PASSED else result.outcome.value
        blocks.append(FailureBlock(result, f"{word} now", context, is_fixed=True))
    return [block for block in blocks if not view.filter or is_matched(block.result.test, view.filter)]


def _rank(known: KnownTest) -> tuple[bool, str, int, str]:
    """Sort new failures first, then by file and line."""
    where = known.result.failure.where if known.result.failure else None
    return (not known.is_new, where.file if where else "", where.line if where else 0, known.result.test)


def _link(result: Result, root: str) -> str:
    """Return a style that links to the file, for terminals that support links."""
    where = location_of(result)
    if where is None or not root:
        return ""
    try:
        return f" link {PurePath(root, where.file).as_uri()}#{where.line}"
    except ValueError:  # not a path of this system
        return ""


def location_of(result: Result) -> Location | None:
    """Return where an editor should open a failure."""
    return (result.failure.where or result.failure.crash) if result.failure else None


def _test_row(result: Result, is_green: bool) -> StyledRow:
    sign, style = SIGNS[result.outcome]
    style = style if style != "green" or is_green else "dim"
    took = f" {duration(result.duration_s)} "
    return StyledRow(left=((f" {sign} ", style), (result.test, "")), right=((took, "dim"),))


# -- output ----------------------------------------------------------------------------------------

RULE = "─" * 79
OUTPUT_LIMIT = 2_000_000
"""In characters; the history has the rest. Escaped for the socket, a character may take six bytes."""


def output_text(lane: LaneState, view: ViewState) -> str:
    """Return the full text of the selected failure, or of all failures followed by the runner's own output."""
    results = selectable_failures(lane, view)
    if view.selected is not None and results:
        return _bounded(_failure_text(results[min(view.selected, len(results) - 1)]))
    return _bounded(_full_text(lane, results))


def _full_text(lane: LaneState, results: tuple[Result, ...]) -> Iterator[str]:
    run = f" · run {lane.runs.last.run.id}" if lane.runs.last else ""
    yield f"{words.standing(lane)}{run}\n"
    if lane.problem is not None:
        yield f"\n{RULE}\ntests cannot run\n{RULE}\n{lane.problem.message}\n{lane.problem.hint}\n"
    for result in results:
        yield from _failure_text(result)
    if lane.runs.last and lane.runs.last.raw_output:
        yield f"\n{RULE}\noutput of the runner\n{RULE}\n{lane.runs.last.raw_output}\n"
    elif not results and lane.problem is None:
        yield "\nNo failures, and no output from the runner.\n"


def _failure_text(result: Result) -> Iterator[str]:
    failure = result.failure
    yield f"\n{RULE}\n{words.failure_line(result)}\n{RULE}\n"
    if failure is None:
        return
    yield f"{failure.text or failure.message}\n"
    if failure.output:
        yield f"\noutput of the test:\n{failure.output}\n"


def _bounded(parts: Iterator[str]) -> str:
    shown, left = [], OUTPUT_LIMIT
    for part in parts:
        shown.append(part[:left])
        left -= len(shown[-1])
        if left <= 0:
            shown.append("\n… truncated; the history has the rest\n")
            break
    return clean("".join(shown))
