"""The dashboard: the rows of `screen` on a terminal, by rich. Owns the screen while entered; the loop owns the time."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from watchtest.core.state import State
from watchtest.views.screen import Panel, Row, Span, rows
from watchtest.views.text import clean

INTERVAL_S = 0.12
"""Between two drawings of a state that goes on changing."""
IDLE_INTERVAL_S = 1.0
"""Between two drawings of one state: its ages grow."""


def render(state: State, *, now: float, width: int, height: int, title: str = "", panel: Panel = "") -> RenderableType:
    """The screen of a state, exactly `height` rows of at most `width` columns."""
    drawn = rows(state, now=now, height=height, title=title, panel=panel)
    return Group(*(_text(row, width) for row in drawn))


class Dashboard:
    """Shows states on the terminal until it is left; then the terminal is as it was before."""

    def __init__(self, console: Console | None = None, *, title: str = "") -> None:
        self._console = console or Console(highlight=False)
        # No refresh thread and no swapped streams: nothing is drawn but by `show` and `tick`.
        self._live = Live(
            console=self._console, auto_refresh=False, screen=True, redirect_stdout=False, redirect_stderr=False
        )
        self._title = title
        self._state: State | None = None
        self._is_due = False
        self._panel: Panel = ""
        self._drawn_at = float("-inf")
        self._size: tuple[int, int] = (0, 0)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, traceback)

    def show(self, state: State, now: float) -> None:
        """Draw `state`, at once if it is not the next of a quick row of them."""
        self._state = state
        self._is_due = True
        self.tick(now)

    def toggle(self, panel: Panel, now: float) -> None:
        """Show that panel, or hide it if it is there."""
        self._panel = "" if self._panel == panel else panel
        self._draw(now)

    def tick(self, now: float) -> None:
        """Draw what waits, what grew old, and everything after a change of the terminal's size."""
        waited = now - self._drawn_at
        due_s = INTERVAL_S if self._is_due else IDLE_INTERVAL_S
        if not 0 <= waited < due_s or self._console.size != self._size:
            self._draw(now)

    def _draw(self, now: float) -> None:
        if self._state is None:
            return
        self._size = size = self._console.size
        self._drawn_at, self._is_due = now, False
        self._live.update(
            render(
                self._state,
                now=now,
                width=size.width,
                height=size.height,
                title=self._title,
                panel=self._panel,
            ),
            refresh=True,
        )


def _text(row: Row, width: int) -> Text:
    left, parts = _joined(row.left, row.band), row.right
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
