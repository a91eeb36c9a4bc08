"""The rows that screens are made of: text with styles, and how it gives way where there is too little room.

Knows no terminal library: a style is a word or two that rich understands, and a row can be sent to another process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from watchtest.core.text import cut

Span = tuple[str, str]
"""A text and its style, in rich's words."""


@dataclass(frozen=True, slots=True)
class StyledRow:
    """One row of the screen: text from the left, parts at the right edge as far as they fit, a bar in between."""

    left: tuple[Span, ...] = ()
    right: tuple[Span, ...] = ()
    band: str = ""
    bar: float | None = None
    """How much of the space in between is done."""
    groups: tuple[tuple[Span, ...], ...] = ()
    """After the left text, as many of these as there is room for; each whole or not at all."""
    wraps: bool = False
    """A left text that is too long goes on below, where empty rows can give way."""


def text_row(text: str, style: str = "") -> StyledRow:
    return StyledRow(left=((f" {cut(text, 500)}".replace("\n", " "), style),))


def wrapping_row(text: str, style: str = "") -> StyledRow:
    """To be read to its end: what is wrong, and what to do about it."""
    return StyledRow(left=text_row(text, style).left, wraps=True)


def indented_row(text: str, style: str = "") -> StyledRow:
    """A row of the text below a headline."""
    return StyledRow(left=((f"     {cut(text, 500)}", style),))


def as_document(row: StyledRow) -> dict[str, Any]:
    """Only what is not as by default: most rows have little."""
    document: dict[str, Any] = {"left": row.left, "right": row.right, "band": row.band, "bar": row.bar}
    document["groups"] = row.groups
    told = {name: value for name, value in document.items() if value not in ((), "", None)}
    return told | ({"wraps": True} if row.wraps else {})


def from_document(document: dict[str, Any]) -> StyledRow:
    """The row that a document is of; ValueError, TypeError, KeyError: of none."""
    bar = document.get("bar")
    return StyledRow(
        left=_spans(document.get("left", ())),
        right=_spans(document.get("right", ())),
        band=str(document.get("band", "")),
        bar=None if bar is None else float(bar),
        groups=tuple(_spans(group) for group in document.get("groups", ())),
        wraps=document.get("wraps") is True,
    )


def _spans(spans: Any) -> tuple[Span, ...]:
    return tuple((str(text), str(style)) for text, style in spans)
