"""Scopes report everything that was touched, however much there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from watchtest.agent.record.scopes import ITEMS_PER_ROW, Scopes
from watchtest.selection.recorded_rows import RecordingRows


def test_a_test_that_reads_more_than_a_row_holds_is_told_whole(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    scopes = Scopes(str(tmp_path), rows.append, lambda: None)
    names = {f"data/{number}" for number in range(ITEMS_PER_ROW + 10)}
    scopes.begin("test:a.py::test_a")
    for name in names:
        scopes.touch("files", name)
    scopes.touch("folders", "data")
    scopes.end("test:a.py::test_a")
    scopes.report("test:a.py::test_a")
    recordings = RecordingRows()
    recordings.take([*rows, {"k": "test", "test": "a.py::test_a", "outcome": "passed"}])
    touched = recordings.recorded({}).tests["a.py::test_a"]
    assert touched.files == names
    assert touched.folders == {"data"}
    assert all(len(words) <= ITEMS_PER_ROW for row in rows for words in row.values() if isinstance(words, list))


def test_what_an_interrupted_test_has_touched_is_not_taken_for_all_that_it_touches() -> None:
    recordings = RecordingRows()
    recordings.take(
        [
            {"k": "test", "test": "a.py::test_ended", "outcome": "passed"},
            {"k": "scope", "scope": "test:a.py::test_ended", "files": ["data.txt"]},
            {"k": "start", "test": "a.py::test_interrupted"},
            {"k": "scope", "scope": "test:a.py::test_interrupted", "files": ["first.txt"]},
            {"k": "scope", "scope": "file:a.py", "files": ["at-import.txt"]},
        ]
    )
    recorded = recordings.recorded({})
    assert recorded.tests.keys() == {"a.py::test_ended"}
    assert recorded.scopes["file:a.py"].files == {"at-import.txt"}


def test_what_outlives_a_test_is_told_once_and_again_only_for_what_is_new(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    scopes = Scopes(str(tmp_path), rows.append, lambda: None)
    memo = "memo:1:rates:shop.py"
    for test, file in (("a", "one.txt"), ("b", "one.txt"), ("c", "two.txt")):
        scopes.begin(f"test:{test}")
        scopes.begin(memo)
        scopes.touch("files", file)
        scopes.end(memo)
        scopes.end(f"test:{test}")
        scopes.report(f"test:{test}")
    assert [row["files"] for row in rows if row["scope"] == memo] == [["one.txt"], ["two.txt"]]
    assert [row["uses"] for row in rows if row["scope"] != memo] == [[memo]] * 3
