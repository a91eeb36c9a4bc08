"""The rows of a screen: styled text, and how it gives way if there is too little room.

Rows do not depend on the terminal library: a style is a string that rich understands, and rows can be sent to another
process.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from watchtest.core.text import ROW_LIMIT, cut

Span = tuple[str, str]
"""A text and its style in rich's notation."""


@dataclass(frozen=True, slots=True)
class StyledRow:
    """One row of the screen: text at the left, as many parts at the right edge as fit, and a bar in between."""

    left: tuple[Span, ...] = ()
    right: tuple[Span, ...] = ()
    band: str = ""
    """The background style of the whole row."""
    bar: float | None = None
    """The share of the space in between that is drawn as done."""
    bar_style: str = "cyan"
    groups: tuple[tuple[Span, ...], ...] = ()
    """Follow the left text as far as there is room; a group is shown whole or not at all."""
    wraps: bool = False
    """A left text that is too long continues on the next row, in place of an empty row."""


EMPTY_ROW = StyledRow()


def outdated_row(row: StyledRow) -> StyledRow:
    """Return a row that may no longer be true: without colours and without signs of success."""

    def dimmed(spans: tuple[Span, ...]) -> tuple[Span, ...]:
        return tuple((text.replace("✔", "?"), "dim") for text, _ in spans)

    groups = tuple(dimmed(group) for group in row.groups)
    return StyledRow(dimmed(row.left), dimmed(row.right), bar=row.bar, bar_style="dim", groups=groups, wraps=row.wraps)


def text_row(text: str, style: str = "") -> StyledRow:
    return StyledRow(left=((f" {cut(text, ROW_LIMIT)}".replace("\n", " "), style),))


def wrapping_row(text: str, style: str = "") -> StyledRow:
    """Return a row for text that has to be readable to its end: a problem and its hint."""
    return StyledRow(left=text_row(text, style).left, wraps=True)


def indented_row(text: str, style: str = "") -> StyledRow:
    """Return a row of the text below a headline."""
    return StyledRow(left=((f"     {cut(text, ROW_LIMIT)}", style),))


def to_document(row: StyledRow) -> dict[str, Any]:
    """Return the fields that differ from the default; most rows have few of them."""
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    return {name: value for name, value in values.items() if value != getattr(EMPTY_ROW, name)}


def from_document(document: dict[str, Any]) -> StyledRow:
    """Return the row of a document. Raises ValueError, TypeError or KeyError if it is malformed."""
    bar = document.get("bar")
    return StyledRow(
        left=_spans(document.get("left", ())),
        right=_spans(document.get("right", ())),
        band=str(document.get("band", "")),
        bar=None if bar is None else float(bar),
        bar_style=str(document.get("bar_style", EMPTY_ROW.bar_style)),
        groups=tuple(_spans(group) for group in document.get("groups", ())),
        wraps=document.get("wraps") is True,
    )


def _spans(spans: Any) -> tuple[Span, ...]:
    return tuple((str(text), str(style)) for text, style in spans)
