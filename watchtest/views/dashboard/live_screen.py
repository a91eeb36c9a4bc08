"""Draws rows on a terminal with rich. Owns the screen while entered; the caller's ticks give it the time."""

from __future__ import annotations

import io
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from watchtest.core.text import clean, uncleaned
from watchtest.views.dashboard.navigation import ViewState
from watchtest.views.dashboard.styled_rows import EMPTY_ROW, Span, StyledRow
from watchtest.views.lines.plain_lines import discard_output

INTERVAL_S = 0.12
"""The shortest time between two drawings while the content keeps changing."""
IDLE_INTERVAL_S = 1.0
"""How often an unchanged state is rendered again: the ages on it grow."""
REPAIR_S = 10.0
"""Unchanged rows are drawn again after this time: another program may have written on the terminal."""

INDENT = "   "
"""The indent of a continued row."""

Rows = Callable[[ViewState, int, float], Sequence[StyledRow]]
"""Returns the rows to show for a view, a height and a time."""


def render(rows: Sequence[StyledRow], width: int) -> RenderableType:
    """Return as many rows as given, at most `width` columns wide. Rows that wrap take the place of empty rows."""
    spare = sum(row == EMPTY_ROW for row in rows)
    shown: list[StyledRow] = []
    for row in rows:
        parts = _wrapped(row, width, 1 + spare) if row.wraps else [row]
        spare -= len(parts) - 1
        shown += parts
    for index in range(len(shown) - 1, -1, -1):
        if len(shown) > len(rows) and shown[index] == EMPTY_ROW:
            del shown[index]
    return Group(*(_text(row, width) for row in shown))


def _wrapped(row: StyledRow, width: int, most: int) -> list[StyledRow]:
    """Return the text on up to `most` rows, cut at the end of the last one."""
    *label, (text, style) = row.left
    label = label or [(" ", "")]
    indent = " " * max(sum(len(part) for part, _ in label), len(INDENT))
    lines = textwrap.wrap(clean(text).strip(), max(width - len(indent) - 1, 20)) or [""]
    lines = [*lines[: most - 1], " ".join(lines[most - 1 :])] if len(lines) > most else lines
    return [
        StyledRow(left=(*label, (lines[0], style))),
        *(StyledRow(left=((indent, ""), (line, style))) for line in lines[1:]),
    ]


class LiveScreen:
    """Shows rows on the terminal while entered, and restores the terminal on leaving."""

    def __init__(self, rows: Rows, console: Console | None = None) -> None:
        self._rows = rows
        # Ask the terminal for its size: COLUMNS and LINES are outdated once the window has been resized.
        environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self._console = console or Console(file=uncleaned(sys.stdout), highlight=False, _environ=environ)
        # No refresh thread and no swapped streams: only this class draws.
        self._live = Live(
            console=self._console, auto_refresh=False, screen=True, redirect_stdout=False, redirect_stderr=False
        )
        self._is_due = False
        self._is_on = False
        self._rendered_at = float("-inf")
        self._drawn_at = float("-inf")
        self._size: tuple[int, int] = (0, 0)
        self._shown: Sequence[StyledRow] = ()
        self.view = ViewState()

    def __enter__(self) -> Self:
        if isinstance(self._console.file, io.TextIOWrapper):
            self._console.file.reconfigure(errors="replace")  # a console that cannot encode ✔ gets a question mark
        self._live.__enter__()
        self._is_on = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_on = False
        with self._ignore_closed_window():
            self._live.stop()

    def refresh(self, now: float) -> None:
        """Draw a change: at once, or with the next tick if changes follow each other quickly."""
        self._is_due = True
        self.tick(now)

    def change_view(self, view: ViewState, now: float) -> None:
        self.view = view
        self.draw(now)

    def tick(self, now: float) -> None:
        """Draw if a change is waiting, if ages have grown, or if the terminal was resized."""
        due_s = INTERVAL_S if self._is_due else IDLE_INTERVAL_S
        if self._console.size != self._size:
            self.draw(now)
        elif not 0 <= now - self._rendered_at < due_s:
            rows = self._render(now)
            # Drawing the same rows again would be most of the cost of an idle watcher.
            if rows != self._shown or not 0 <= now - self._drawn_at < REPAIR_S:
                self._draw(rows, now)

    def draw(self, now: float) -> None:
        if self._is_on:
            self._size = self._console.size
            self._draw(self._render(now), now)

    def _render(self, now: float) -> Sequence[StyledRow]:
        self._rendered_at, self._is_due = now, False
        return self._rows(self.view, self._size[1], now)

    def _draw(self, rows: Sequence[StyledRow], now: float) -> None:
        if not self._is_on:
            return
        self._shown, self._drawn_at = rows, now
        screen = render(rows, self._size[0])
        with self._ignore_closed_window():
            self._live.update(screen, refresh=True)

    @contextmanager
    def _ignore_closed_window(self) -> Iterator[None]:
        """Stop drawing if the terminal is gone. That does not end the watcher, unless SIGHUP does."""
        try:
            yield
        except OSError:
            self._is_on = False
            discard_output(sys.stdout)


def _text(row: StyledRow, width: int) -> Text:
    left, parts = _join(row.left, row.band), row.right
    for group in row.groups:
        more = _join(group, row.band)
        if left.cell_len + more.cell_len > width:
            break
        left.append_text(more)
    right = _join(parts, row.band)
    while len(parts) > 1 and left.cell_len + right.cell_len > width:
        parts = parts[1:]
        right = _join(parts, row.band)
    if left.cell_len + right.cell_len > width:
        right.truncate(width // 2)
    left.truncate(width - right.cell_len, overflow="ellipsis")
    between = max(width - left.cell_len - right.cell_len, 0)
    if row.bar is not None:
        done = round(between * row.bar)
        left.append("━" * done, row.bar_style)
        left.append("─" * (between - done), "bright_black")
    elif row.right or row.band:
        left.append(" " * between, row.band)
    left.append_text(right)
    return left


def _join(spans: tuple[Span, ...], band: str) -> Text:
    # Text is never parsed as markup: names and messages of tests cannot colour, link or break the screen.
    text = Text(no_wrap=True, overflow="crop")
    for part, style in spans:
        text.append(clean(part).replace("\n", " ").replace("\t", "    "), f"{band} {style}".strip())
    return text
