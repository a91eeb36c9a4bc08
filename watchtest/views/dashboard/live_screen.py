"""The dashboard: rows on a terminal, by rich. Owns the screen while entered; whoever ticks it owns the time."""

from __future__ import annotations

import io
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from watchtest.core.text import clean
from watchtest.views.dashboard.navigation import ViewState
from watchtest.views.dashboard.styled_rows import Span, StyledRow
from watchtest.views.lines.plain_lines import discard_output

INTERVAL_S = 0.12
"""Between two drawings of what goes on changing."""
IDLE_INTERVAL_S = 1.0
"""Between two looks at one state: its ages grow."""
REPAIR_S = 10.0
"""What has not changed is drawn again after so long: somebody else may have written on the terminal."""

INDENT = "   "
"""Before what goes on from the row above."""

Rows = Callable[[ViewState, int, float], Sequence[StyledRow]]
"""What to show for a look, on so many rows, at that time."""


def render(rows: Sequence[StyledRow], width: int) -> RenderableType:
    """Rows of at most `width` columns, as many as there are; empty ones give way to texts that are too long."""
    spare = sum(row == StyledRow() for row in rows)
    shown: list[StyledRow] = []
    for row in rows:
        parts = _wrapped(row, width, 1 + spare) if row.wraps else [row]
        spare -= len(parts) - 1
        shown += parts
    for index in range(len(shown) - 1, -1, -1):
        if len(shown) > len(rows) and shown[index] == StyledRow():
            del shown[index]
    return Group(*(_text(row, width) for row in shown))


def _wrapped(row: StyledRow, width: int, most: int) -> list[StyledRow]:
    """The same text on up to so many rows; what is too much for them is cut at the end of the last."""
    *label, (text, style) = row.left
    label = label or [(" ", "")]
    indent = " " * max(sum(len(said) for said, _ in label), len(INDENT))
    lines = textwrap.wrap(clean(text).strip(), max(width - len(indent) - 1, 20)) or [""]
    lines = [*lines[: most - 1], " ".join(lines[most - 1 :])] if len(lines) > most else lines
    return [
        StyledRow(left=(*label, (lines[0], style))),
        *(StyledRow(left=((indent, ""), (line, style))) for line in lines[1:]),
    ]


class LiveScreen:
    """Shows rows on the terminal until it is left; then the terminal is as it was before."""

    def __init__(self, rows: Rows, console: Console | None = None) -> None:
        self._rows = rows
        # By what the terminal itself says: a size in the environment is that of yesterday once the window was resized.
        environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self._console = console or Console(highlight=False, _environ=environ)
        # No refresh thread and no swapped streams: nothing is drawn but from here.
        self._live = Live(
            console=self._console, auto_refresh=False, screen=True, redirect_stdout=False, redirect_stderr=False
        )
        self._is_due = False
        self._is_on = False
        self._looked_at = float("-inf")
        self._drawn_at = float("-inf")
        self._size: tuple[int, int] = (0, 0)
        self._shown: Sequence[StyledRow] = ()
        self.look = ViewState()

    def __enter__(self) -> Self:
        if isinstance(self._console.file, io.TextIOWrapper):
            self._console.file.reconfigure(errors="replace")  # consoles that know no ✔ get a question mark
        self._live.__enter__()
        self._is_on = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_on = False
        with self._may_be_gone():
            self._live.__exit__(kind, error, traceback)

    def refresh(self, now: float) -> None:
        """There is something else to show: at once, if it is not the next of a quick row of them."""
        self._is_due = True
        self.tick(now)

    def look_as(self, look: ViewState, now: float) -> None:
        self.look = look
        self.draw(now)

    def tick(self, now: float) -> None:
        """Draw what waits, what grew old, and everything after a change of the terminal's size."""
        due_s = INTERVAL_S if self._is_due else IDLE_INTERVAL_S
        if self._console.size != self._size:
            self.draw(now)
        elif not 0 <= now - self._looked_at < due_s:
            rows = self._looked(now)
            # Most of what a watcher at rest costs would be drawing the same again and again.
            if rows != self._shown or not 0 <= now - self._drawn_at < REPAIR_S:
                self._draw(rows, now)

    def draw(self, now: float) -> None:
        if self._is_on:
            self._size = self._console.size
            self._draw(self._looked(now), now)

    def _looked(self, now: float) -> Sequence[StyledRow]:
        self._looked_at, self._is_due = now, False
        return self._rows(self.look, self._size[1], now)

    def _draw(self, rows: Sequence[StyledRow], now: float) -> None:
        if not self._is_on:
            return
        self._shown, self._drawn_at = rows, now
        screen = render(rows, self._size[0])
        with self._may_be_gone():
            self._live.update(screen, refresh=True)

    @contextmanager
    def _may_be_gone(self) -> Iterator[None]:
        """A window that was closed is not the end of the watcher, unless SIGHUP says so; and not a bug."""
        try:
            yield
        except OSError:
            self._is_on = False
            discard_output(sys.stdout)


def _text(row: StyledRow, width: int) -> Text:
    left, parts = _joined(row.left, row.band), row.right
    for group in row.groups:
        more = _joined(group, row.band)
        if left.cell_len + more.cell_len > width:
            break
        left.append_text(more)
    right = _joined(parts, row.band)
    while len(parts) > 1 and left.cell_len + right.cell_len > width:
        parts = parts[1:]
        right = _joined(parts, row.band)
    if left.cell_len + right.cell_len > width:
        right.truncate(width // 2)
    left.truncate(width - right.cell_len, overflow="ellipsis")
    between = max(width - left.cell_len - right.cell_len, 0)
    if row.bar is not None:
        done = round(between * row.bar)
        left.append("━" * done, "green")
        left.append("─" * (between - done), "bright_black")
    elif row.right or row.band:
        left.append(" " * between, row.band)
    left.append_text(right)
    return left


def _joined(spans: tuple[Span, ...], band: str) -> Text:
    # Text is never markup here: what a test is called or says cannot colour, link or break the screen.
    text = Text(no_wrap=True, overflow="crop")
    for said, style in spans:
        text.append(clean(said).replace("\n", " ").replace("\t", "    "), f"{band} {style}".strip())
    return text
