"""How the history looks on a terminal: safe text from boxes, outcome strips, sparklines, bars and tables."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from watchtest.core.model import Outcome, RunState
from watchtest.core.text import clean, duration, encodable, short, uncleaned, with_provisional
from watchtest.history.queries.run_queries import PastRun
from watchtest.history.store.columns import RED_STATES

if TYPE_CHECKING:
    from rich.text import Text

STYLES: Mapping[str, str] = {
    RunState.PASSED: "green",
    RunState.FAILED: "red",
    RunState.ERROR: "red",
    RunState.TIMED_OUT: "red",
    RunState.BROKEN: "yellow",
}
PROVISIONAL_STYLE = "yellow"
LETTERS: Mapping[Outcome, tuple[str, str]] = {
    Outcome.PASSED: (".", "green"),
    Outcome.FAILED: ("F", "bold red"),
    Outcome.ERROR: ("E", "bold red"),
    Outcome.SKIPPED: ("s", "dim"),
    Outcome.XFAILED: ("x", "dim"),
    Outcome.XPASSED: ("X", "yellow"),
}
"""The letters that pytest uses; they can be told apart without colours."""
NARROW = 60
"""On terminals with fewer columns, tables leave out what is only nice to have."""


def state(run: PastRun, *, is_short: bool = False) -> str:
    """Return `passed`, or `passed (provisional: changed by hand: pip install x)`; the short form leaves out why."""
    if run.provisional is None:
        return run.state.value
    return with_provisional(run.state.value, run.provisional.code.ending if is_short else run.provisional.message)


def style(run: PastRun) -> str:
    is_doubtful = run.provisional is not None and run.state not in RED_STATES
    return PROVISIONAL_STYLE if is_doubtful else STYLES.get(run.state, "")


class Screen:
    """Prints on the terminal. Text from boxes becomes safe: it can contain neither markup nor control sequences."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(file=uncleaned(sys.stdout), highlight=False, markup=False, emoji=False)
        self.width = self.console.width

    def text(self, text: str, style: str = "") -> Text:
        from rich.text import Text

        return Text(encodable(clean(text), self.console.encoding), style=style)

    def print(self, *parts: str | Text, style: str = "", wrap: bool = False) -> None:
        """Print a line. With `wrap`, a long one is broken between words; otherwise ids and paths stay in one piece."""
        texts = (self.text(part, style) if isinstance(part, str) else part for part in parts)
        self.console.print(*texts, sep="", soft_wrap=not wrap)

    def outcome_strip(self, outcomes: Iterable[Outcome]) -> Text:
        """Return one letter per run, oldest first."""
        strip = self.text("")
        for outcome in outcomes:
            strip.append(*LETTERS[outcome])
        return strip

    def sparkline(self, numbers: Sequence[float]) -> Text:
        """Return one column per number, scaled from 0 to the largest."""
        levels, most = self._shown_as("▁▂▃▄▅▆▇█", "_.-:=+*#"), max(numbers, default=0.0) or 1.0
        return self.text("".join(levels[min(len(levels) - 1, int(each / most * len(levels)))] for each in numbers))

    def bar(self, part: float, width: int, style: str) -> Text:
        """Return a bar for a part between 0 and 1. It is visible for any part above 0."""
        return self.text(self._shown_as("█", "#") * max(1 if part > 0 else 0, round(min(part, 1.0) * width)), style)

    def _shown_as(self, characters: str, plain: str) -> str:
        """Return the characters, or the plain ones if the terminal cannot show them."""
        return characters if encodable(characters, self.console.encoding) == characters else plain

    def table(
        self,
        columns: Sequence[tuple[str, Sequence[str | Text]]],
        *,
        right: Collection[str] = (),
        only_wide: Collection[str] = (),
        first_to_go: Iterable[str] = (),
    ) -> None:
        """Print a table of columns, each with a heading and its cells; those in `right` are aligned to the right.

        A narrow terminal does not get those in `only_wide`. Those in `first_to_go` are dropped in this order until the
        others fit.
        """
        from rich.table import Table

        kept = [column for column in columns if self.width >= NARROW or column[0] not in only_wide]
        for dropped in first_to_go:
            if sum(2 + max(map(len, (heading, *cells))) for heading, cells in kept) <= self.width + 2:
                break
            kept = [column for column in kept if column[0] != dropped]
        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading, _ in kept:
            if heading in right:
                table.add_column(heading, overflow="fold", justify="right", no_wrap=True)
            else:
                table.add_column(heading, overflow="fold")
        for row in zip(*(cells for _, cells in kept), strict=True):
            table.add_row(*(self.text(cell) if isinstance(cell, str) else cell for cell in row))
        self.console.print(table)


def format_time(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")


def format_seconds(spent: float) -> str:
    """Return a duration with milliseconds, as most tests are fast."""
    return f"{spent * 1000:.0f} ms" if spent < 1 else f"{spent:.2f} s" if spent < 10 else duration(spent)


def counts(run: PastRun) -> str:
    """Return `1 failed, 20 passed`, red outcomes first."""
    red_first = sorted(run.counts, key=lambda outcome: not outcome.is_red)
    return ", ".join(f"{run.counts[outcome]} {outcome.value}" for outcome in red_first)


def describe_run(run: PastRun) -> str:
    """Return `run 8ed5cb.3 (2026-11-18 09:02:35, tree 109380dd on main)`."""
    tree = f", tree {short(run.tree)}" if run.tree else ""
    head = f" on {run.branch}" if run.branch else ""
    return f"run {run.id} ({format_time(run.queued_at)}{tree}{head})"
