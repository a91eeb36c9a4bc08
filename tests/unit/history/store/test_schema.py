"""Opening the history: migrations, damaged files, folders without permission. All files are real."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from watchtest.core.model import All, Lane, Outcome, Result, Run, RunState, Trigger
from watchtest.errors import WorkspaceError
from watchtest.history.queries.run_queries import recent_runs, results_of
from watchtest.history.store.database_file import open_for_reading, open_for_writing
from watchtest.history.store.schema import MIGRATIONS, Migration
from watchtest.history.store.store import Store

ONE: Migration = ("CREATE TABLE words (word TEXT NOT NULL)", "INSERT INTO words VALUES ('kept')")
TWO: Migration = ("ALTER TABLE words ADD COLUMN length INTEGER", "UPDATE words SET length = length(word)")
BROKEN: Migration = ("CREATE TABLE half (x)", "THIS IS NOT SQL")


def ignore(_: str) -> None:
    """Ignore a warning, in tests that expect none."""


def a_run(number: int) -> Run:
    return Run(f"s.{number}", Lane.SAVE, Trigger.SAVE, All("all tests"))


def fill(path: Path, runs: int = 30) -> None:
    with Store(path) as store:
        for number in range(runs):
            store.begin(a_run(number), 1.0, "/w")
            store.add_results(f"s.{number}", [Result(f"t.py::{i}", Outcome.PASSED, 0.1) for i in range(50)], 2.0)
            store.end(f"s.{number}", RunState.PASSED, "", 3.0, "")


def run_ids(path: Path) -> list[str]:
    with open_for_reading(path) as connection:
        return [run.id for run in recent_runs(connection, limit=1000)]


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def without_privilege() -> Iterator[Path]:
    """Return a folder that can be read but not written, even if the tests run as root."""
    folder = Path(tempfile.mkdtemp())
    is_root = os.geteuid() == 0
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        if is_root:
            os.seteuid(0)
        for each in (folder, *folder.rglob("*")):
            each.chmod(0o755)
        shutil.rmtree(folder)


def drop_privilege(folder: Path) -> None:
    for each in folder.rglob("*"):
        each.chmod(0o555 if each.is_dir() else 0o444)
    folder.chmod(0o555)
    if os.geteuid() == 0:
        os.seteuid(65534)


# -- migrations ------------------------------------------------------------------------------------


def test_a_new_file_has_had_every_migration_and_writes_ahead(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "h.sqlite3"
    with closing(open_for_writing(path, ignore)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert connection.execute("PRAGMA synchronous").fetchone()[0] == 1
        assert connection.execute("PRAGMA foreign_keys").fetchone()[0] == 1
        assert connection.execute("PRAGMA busy_timeout").fetchone()[0] >= 5000
    assert version(path) == len(MIGRATIONS)


def test_an_older_file_is_brought_up_to_date_with_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite3"
    open_for_writing(path, ignore, migrations=[ONE]).close()
    assert version(path) == 1

    with closing(open_for_writing(path, ignore, migrations=[ONE, TWO])) as connection:
        assert [tuple(row) for row in connection.execute("SELECT word, length FROM words")] == [("kept", 4)]
    assert version(path) == 2


def test_a_migration_that_fails_changes_nothing_and_those_before_it_stay(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite3"
    with pytest.raises(WorkspaceError, match=r"h\.sqlite3 reports an error"):
        open_for_writing(path, ignore, migrations=[ONE, BROKEN])

    assert version(path) == 1
    with closing(sqlite3.connect(path)) as connection:
        assert [row[0] for row in connection.execute("SELECT name FROM sqlite_master")] == ["words"]


def test_a_newer_file_is_refused_by_writer_and_reader_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite3"
    fill(path, runs=1)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    before = path.read_bytes()

    with pytest.raises(WorkspaceError, match="upgrade watchtest"):
        Store(path)
    with pytest.raises(WorkspaceError, match="upgrade watchtest"):
        run_ids(path)

    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.glob("*damaged*")] == []


def test_a_file_that_is_migrated_beside_an_open_store_is_not_written_by_it(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite3"
    with Store(path) as store:
        open_for_writing(path, ignore, migrations=[*MIGRATIONS, ("CREATE TABLE newer (x)",)]).close()
        with pytest.raises(WorkspaceError, match="upgrade watchtest"):
            store.begin(a_run(1), 1.0, "/w")


def test_a_reader_brings_an_older_file_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite3"
    path.touch()

    assert run_ids(path) == []
    assert version(path) == len(MIGRATIONS)


def test_there_is_no_reading_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="cannot be opened"):
        run_ids(tmp_path / "h.sqlite3")
    assert list(tmp_path.iterdir()) == []


# -- damage ----------------------------------------------------------------------------------------


def overwrite(path: Path, offset: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(os.urandom(size))


@pytest.mark.parametrize(("offset", "size"), [(0, 200), (4096 * 3, 4096 * 4)], ids=["header", "pages in the middle"])
def test_a_damaged_file_is_set_aside_whole_and_said(tmp_path: Path, offset: int, size: int) -> None:
    path = tmp_path / "history.sqlite3"
    fill(path)
    overwrite(path, offset, size)
    damaged = path.read_bytes()
    said: list[str] = []

    with Store(path, said.append) as store:
        store.begin(a_run(999), 1.0, "/w")

    assert run_ids(path) == ["s.999"]
    assert (tmp_path / "history.damaged-1.sqlite3").read_bytes() == damaged
    assert len(said) == 1
    assert "history.damaged-1.sqlite3" in said[0]


def test_a_second_damaged_file_does_not_replace_the_first(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    for content in (b"first" * 1000, b"second" * 1000):
        path.write_bytes(content)
        Store(path, ignore).close()

    assert (tmp_path / "history.damaged-1.sqlite3").read_bytes() == b"first" * 1000
    assert (tmp_path / "history.damaged-2.sqlite3").read_bytes() == b"second" * 1000


@pytest.mark.parametrize("content", [b"garbage" * 1000, b""], ids=["garbage", "emptied"])
def test_a_log_is_set_aside_with_its_file_and_not_replayed_into_the_new_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "history.sqlite3"
    path.write_bytes(content)
    (tmp_path / "history.sqlite3-wal").write_bytes(b"log")

    Store(path, ignore).close()

    assert (tmp_path / "history.damaged-1.sqlite3-wal").read_bytes() == b"log"


def test_a_reader_says_that_a_file_is_damaged_and_does_not_move_it(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    path.write_bytes(b"garbage" * 1000)

    with pytest.raises(WorkspaceError, match="is damaged"):
        run_ids(path)

    assert path.read_bytes() == b"garbage" * 1000


def test_damage_while_it_is_open_is_an_error_once_and_healed_at_the_next_call(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    fill(path)
    said: list[str] = []
    with Store(path, said.append) as store:
        # Another writer's commit makes the store read the pages again; the checkpoint writes them all to the file.
        with Store(path) as other:
            other.begin(a_run(999), 1.0, "/w")
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        overwrite(path, 4096, path.stat().st_size - 4096)
        with pytest.raises(WorkspaceError, match="is damaged"):
            store.begin(a_run(1000), 1.0, "/w")

        store.begin(a_run(1001), 1.0, "/w")

        assert run_ids(path) == ["s.1001"]
        assert len(said) == 1
        assert (tmp_path / "history.damaged-1.sqlite3").exists()


def test_a_file_that_was_moved_away_is_created_again_and_the_moved_one_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history.sqlite3"
    with Store(path) as store:
        store.begin(a_run(1), 1.0, "/w")
        path.parent.rename(tmp_path / "moved")

        with pytest.raises(WorkspaceError, match="not in the history"):
            store.end("s.1", RunState.PASSED, "", 2.0, "")
        store.begin(a_run(2), 3.0, "/w")

        assert run_ids(path) == ["s.2"]
    assert run_ids(path) == ["s.2"]
    assert run_ids(tmp_path / "moved" / "history.sqlite3") == ["s.1"]


# -- folders that refuse ---------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in the way")

    with pytest.raises(WorkspaceError, match="WATCHTEST_STATE_DIR"):
        Store(tmp_path / "state" / "project" / "history.sqlite3")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX rights")
def test_a_read_only_folder_can_be_read_and_not_written() -> None:
    with without_privilege() as folder:
        path = folder / "history.sqlite3"
        fill(path, runs=3)
        drop_privilege(folder)

        with pytest.raises(WorkspaceError, match="history"):
            Store(path)
        assert run_ids(path) == ["s.2", "s.1", "s.0"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX rights")
def test_a_folder_that_may_not_be_entered_is_a_clear_error() -> None:
    with without_privilege() as folder:
        drop_privilege(folder)
        with pytest.raises(WorkspaceError, match="cannot be used"):
            Store(folder / "project" / "history.sqlite3")


FULL = """
import resource, sys
from pathlib import Path
from watchtest.core.model import All, Lane, Outcome, Result, Run, RunState, Trigger
from watchtest.errors import WorkspaceError
from watchtest.history.store.store import Store

store = Store(Path(sys.argv[1]))
store.begin(Run("s.1", Lane.SAVE, Trigger.SAVE, All("")), 1.0, "/w")
store.add_results("s.1", [Result("t.py::first", Outcome.PASSED, 0.1)], 2.0)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, hard))
try:
    store.add_results("s.1", [Result(f"t.py::{'x' * 50}{i}", Outcome.PASSED, 0.1) for i in range(20_000)], 3.0)
except WorkspaceError as error:
    print("said:", error.message)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
store.add_results("s.1", [Result("t.py::last", Outcome.PASSED, 0.1)], 4.0)
store.end("s.1", RunState.PASSED, "", 5.0, "")
store.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_when_no_more_can_be_written_it_is_said_and_what_was_committed_stays(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    ended = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode == 0, ended.stderr
    assert "said: the history" in ended.stdout
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    with open_for_reading(path) as connection:
        (run,) = recent_runs(connection, limit=9)
        names = {past.result.test for past in results_of(connection, run.number)}
    assert names == {"t.py::first", "t.py::last"}
