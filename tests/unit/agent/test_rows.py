"""Rows are signed in their order, so what a test writes to the same pipe is no result; ids have a limit."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from watchtest.agent.rows import (
    KEY_SIZE,
    TEST_ID_LIMIT,
    RowKind,
    RowSignatures,
    RowWriter,
    StartRow,
    TestRow,
    parse_row,
    short_id,
)
from watchtest.core.text import MESSAGE_LIMIT

KEY = bytes(range(KEY_SIZE))


def written(folder: Path, *tests: str) -> list[bytes]:
    """Return the lines that our writer writes about these tests."""
    file = folder / "rows"
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    writer = RowWriter(fd, key=KEY)
    for test in tests:
        writer.send(StartRow(k=RowKind.START, test=test))
        writer.end(TestRow(k=RowKind.TEST, test=test, outcome="failed", duration_s=0.1))
    os.close(fd)
    return file.read_bytes().splitlines()


def test_our_own_rows_are_verified_in_their_order(tmp_path: Path) -> None:
    reader = RowSignatures(KEY)
    rows = [parse_row(reader.verified(line)) for line in written(tmp_path, "test_a", "test_b")]
    assert [(row["k"], row["test"]) for row in rows if row is not None] == [
        ("start", "test_a"),
        ("test", "test_a"),
        ("start", "test_b"),
        ("test", "test_b"),
    ]


def test_a_row_of_a_test_is_dropped_and_ours_still_count(tmp_path: Path) -> None:
    lines = written(tmp_path, "test_a")
    forged = b'{"k":"test","test":"test_a","outcome":"passed","duration_s":0.1}'
    reader = RowSignatures(KEY)
    found = [reader.verified(line) for line in (lines[0], forged, b"0" * 16 + forged, b"", lines[1])]
    assert [bool(row) for row in found] == [True, False, False, False, True]


def test_a_row_that_was_read_once_cannot_be_written_again(tmp_path: Path) -> None:
    first, second = written(tmp_path, "test_a")
    reader = RowSignatures(KEY)
    assert reader.verified(first)
    assert not reader.verified(first)
    assert reader.verified(second)
    assert not RowSignatures(KEY).verified(second), "it has another place in the order"


@given(st.binary(max_size=200))
def test_nothing_else_is_a_row(line: bytes) -> None:
    assert RowSignatures(KEY).verified(line) == b""


def test_the_status_file_holds_the_longest_id_in_one_piece() -> None:
    assert TEST_ID_LIMIT == MESSAGE_LIMIT
    assert short_id("x" * MESSAGE_LIMIT) == "x" * MESSAGE_LIMIT


def test_an_id_that_is_too_long_stays_the_same_and_differs_from_others() -> None:
    long = "test_a.py::test_a[" + "x" * 1_000_000 + "{}]\ud800"
    first, second = (short_id(long.format(number)) for number in (1, 2))
    assert len(first) == len(second) == MESSAGE_LIMIT
    assert first.startswith("test_a.py::test_a[xxx")
    assert first != second
    assert short_id(long.format(1)) == first
