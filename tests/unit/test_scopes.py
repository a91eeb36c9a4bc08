"""What scopes tell of themselves: all of it, however much that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from watchtest.affected.rows import Recordings
from watchtest.agent.scopes import A_ROW, Scopes


def test_a_test_that_reads_more_than_a_row_holds_is_told_whole(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    scopes = Scopes(str(tmp_path), rows.append, lambda: None)
    names = {f"data/{number}" for number in range(A_ROW + 10)}
    scopes.begin("test:a.py::test_a")
    for name in names:
        scopes.touch("files", name)
    scopes.touch("folders", "data")
    scopes.end("test:a.py::test_a")
    scopes.tell("test:a.py::test_a")
    recordings = Recordings()
    recordings.take(rows)
    touched = recordings.recorded({}).tests["a.py::test_a"]
    assert touched.files == names
    assert touched.folders == {"data"}
    assert all(len(words) <= A_ROW for row in rows for words in row.values() if isinstance(words, list))
