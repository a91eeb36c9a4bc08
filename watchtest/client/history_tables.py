"""How the history looks on a terminal: safe text from boxes, outcome strips, sparklines, bars and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from watchtest.core.model import Outcome, RunState
from watchtest.core.text import clean, duration, encodable, one_line, short

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from watchtest.history.queries.run_queries import PastRun

Styled = Callable[..., "Text"]

STYLES: Mapping[str, str] = {
    RunState.PASSED: "green",
    RunState.FAILED: "red",
    RunState.ERROR: "red",
    RunState.TIMED_OUT: "red",
    RunState.BROKEN: "yellow",
}
LETTERS: Mapping[Outcome, tuple[str, str]] = {
    Outcome.PASSED: (".", "green"),
    Outcome.FAILED: ("F", "bold red"),
    Outcome.ERROR: ("E", "bold red"),
    Outcome.SKIPPED: ("s", "dim"),
    Outcome.XFAILED: ("x", "dim"),
    Outcome.XPASSED: ("X", "yellow"),
}
"""The letters that pytest uses; they can be told apart without colours."""
LEVELS, PLAIN_LEVELS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
BLOCK, PLAIN_BLOCK = "█", "#"
NARROW = 60
"""On terminals with fewer columns, tables leave out what is only nice to have."""


def make_console() -> tuple[Console, Styled]:
    """Return a console, and a function that makes text from a box safe for it, without markup or control sequences."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)

    def styled(text: str, style: str = "") -> Text:
        return Text(encodable(clean(text), console.encoding), style=style)

    return console, styled


def outcome_strip(outcomes: Iterable[Outcome]) -> Text:
    """Return one letter per run, oldest first."""
    from rich.text import Text

    text = Text()
    for outcome in outcomes:
        text.append(*LETTERS[outcome])
    return text


def sparkline(numbers: Sequence[float], encoding: str) -> str:
    """Return one column per number, scaled from 0 to the largest."""
    levels = LEVELS if can_encode(LEVELS, encoding) else PLAIN_LEVELS
    most = max(numbers, default=0.0)
    if most <= 0:
        return levels[0] * len(numbers)
    return "".join(levels[min(len(levels) - 1, int(number / most * len(levels)))] for number in numbers)


def bar(part: float, width: int, encoding: str) -> str:
    """Return a bar for a part between 0 and 1. It is visible for any part above 0."""
    block = BLOCK if can_encode(BLOCK, encoding) else PLAIN_BLOCK
    return block * max(1 if part > 0 else 0, round(min(part, 1.0) * width))


def can_encode(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def plain_table(headings: Sequence[str], right: Iterable[str] = ()) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        justify = "right" if heading in right else "left"
        table.add_column(heading, overflow="fold", justify=justify, no_wrap=justify == "right")  # type: ignore[arg-type]
    return table


def drop_columns(columns: dict[str, list[str]], first_to_go: Iterable[str], width: int) -> None:
    """Drop columns in this order until the others fit into the width."""
    for heading in first_to_go:
        if sum(2 + max(map(len, (name, *cells))) for name, cells in columns.items()) <= width + 2:
            break
        columns.pop(heading, None)


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


def list_paths(paths: Sequence[str], most: int = 5) -> str:
    """Return for example `a.py, b.py and 2 more`."""
    shown = ", ".join(one_line(path, 120) for path in paths[:most])
    return shown if len(paths) <= most else f"{shown} and {len(paths) - most} more"
