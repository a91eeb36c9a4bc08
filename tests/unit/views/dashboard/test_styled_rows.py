"""Rows on their way to an attached dashboard."""

from __future__ import annotations

from watchtest.views.dashboard.styled_rows import StyledRow, from_document, to_document


def test_a_row_survives_its_way_to_another_process() -> None:
    rows = [
        StyledRow(),
        StyledRow(left=(("a", "bold"),), right=(("b", ""),), band="red", bar=0.5),
        StyledRow(groups=((("h", "bold"), (" help ", "dim")),)),
        StyledRow(left=(("long", ""),), bar=0.0, wraps=True),
    ]
    assert [from_document(to_document(row)) for row in rows] == rows
    assert to_document(StyledRow()) == {}
