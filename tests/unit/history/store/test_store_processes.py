"""Several processes use one history: some are killed, two write at once, and others read all the time."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from support.history_records import detail_of

from watchtest.core.model import RunState
from watchtest.history.queries.run_queries import recent_runs
from watchtest.history.store.database_file import open_for_reading, open_for_writing
from watchtest.history.store.store import Store

BEGINNING = """
import sys, time
from pathlib import Path
from watchtest.core.model import All, Lane, Outcome, Result, Run, RunState, Trigger
from watchtest.history.store.store import Store

path, name, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
store = Store(path)
def begin(number):
    store.begin(Run(f"{name}.{number}", Lane.SAVE, Trigger.SAVE, All("all")), 1.0, f"/{name}")
"""

WRITE_TILL_KILLED = (
    BEGINNING
    + """
begin(1)
written = 0
deadline = time.monotonic() + seconds
while time.monotonic() < deadline:
    store.add_results(f"{name}.1", [Result(f"t.py::{written + i}", Outcome.PASSED, 0.1) for i in range(7)], 2.0)
    written += 7
    print(written, flush=True)
"""
)

WRITE_FOR_A_WHILE = (
    BEGINNING
    + """
deadline = time.monotonic() + seconds
runs = 0
while time.monotonic() < deadline:
    runs += 1
    begin(runs)
    for batch in range(5):
        results = [Result(f"t.py::{name if i % 2 else ''}{batch * 10 + i}", Outcome.PASSED, 0.1) for i in range(10)]
        store.add_results(f"{name}.{runs}", results, 2.0)
    store.end(f"{name}.{runs}", RunState.PASSED, "", 3.0, "output")
store.close()
print(runs)
"""
)


def start(program: str, path: Path, name: str, seconds: float) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", program, str(path), name, str(seconds)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def integrity(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


@pytest.mark.parametrize("after", [1, 5, 40])
def test_a_killed_writer_leaves_all_it_had_committed_and_a_run_that_can_be_mended(tmp_path: Path, after: int) -> None:
    path = tmp_path / "history.sqlite3"
    with start(WRITE_TILL_KILLED, path, "a", 60) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(after)]
        writer.kill()
        lines += writer.stdout.readlines()  # not by `communicate`, which would skip what is buffered
    # A line that was cut off by the kill has no newline and promises nothing.
    promised = [int(line) for line in lines if line.endswith("\n")]
    assert promised

    with open_for_reading(path) as connection:
        before = detail_of(connection, "a.1")
    with Store(path, warn=pytest.fail) as store:
        assert store.end_dead_runs("/a", 9.0) == 1
    with open_for_reading(path) as connection:
        after_mending = detail_of(connection, "a.1")

    assert before is not None
    assert before.run.state is RunState.RUNNING
    assert len(before.results) >= promised[-1]
    assert len(before.results) % 7 == 0
    assert after_mending is not None
    assert after_mending.results == before.results
    assert (after_mending.run.state, after_mending.run.reason) == (RunState.BROKEN, "the watcher died")
    assert integrity(path) == "ok"


def test_two_writers_and_several_readers_lose_nothing_and_never_wait_too_long(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    deadline = time.monotonic() + 60

    def read(writers: Sequence[subprocess.Popen[str]]) -> int:
        """Query until the writers are done. Every ended run must have all of its results."""
        asked = 0
        while any(writer.poll() is None for writer in writers) and time.monotonic() < deadline:
            if not path.exists():
                time.sleep(0.01)
                continue
            with open_for_reading(path) as connection:
                for run in recent_runs(connection, limit=10):
                    assert run.ended_at is None or sum(run.counts.values()) == 50
                found = detail_of(connection, "last")
                assert found is None or found.run.ended_at is None or len(found.results) == 50
            asked += 1
        return asked

    with start(WRITE_FOR_A_WHILE, path, "a", 3) as first, start(WRITE_FOR_A_WHILE, path, "b", 3) as second:
        with ThreadPoolExecutor(3) as pool:
            asked = [pool.submit(read, (first, second)) for _ in range(3)]
            answers = [each.result(timeout=90) for each in asked]
        said = [writer.communicate(timeout=30) for writer in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), said

    assert all(answers)
    expected = {f"{name}.{n + 1}" for name, (runs, _) in zip("ab", said, strict=True) for n in range(int(runs))}
    with open_for_reading(path) as connection:
        runs = recent_runs(connection, limit=100_000)
    assert {run.id for run in runs} == expected
    assert {sum(run.counts.values()) for run in runs} == {50}
    assert {run.state for run in runs} == {RunState.PASSED}
    assert integrity(path) == "ok"


def test_a_reader_keeps_its_view_while_a_thread_opens_the_history_for_writing_and_another_process_closes_it(
    tmp_path: Path,
) -> None:
    """Closing the file in any thread must not drop the reader's lock; without it, the last writer moves the log into
    the file while it is being read."""
    path = tmp_path / "history.sqlite3"
    tables = ("runs", "packs", "timings")

    def write(name: str) -> None:
        _, errors = start(WRITE_FOR_A_WHILE, path, name, 0.05).communicate(timeout=60)
        assert errors == ""

    write("a")
    with open_for_reading(path) as connection:
        sizes = [len(connection.execute(f"SELECT * FROM {tables[0]}").fetchall())] * len(tables)
        open_for_writing(path, warn=pytest.fail).close()
        write("b")
        assert [len(connection.execute(f"SELECT * FROM {table}").fetchall()) for table in tables] == sizes


def test_many_processes_may_open_a_new_or_a_damaged_history_at_once(tmp_path: Path) -> None:
    """Only the first one creates the file or moves the damaged one aside."""
    for kind in ("new", "damaged"):
        path = tmp_path / kind / "history.sqlite3"
        if kind == "damaged":
            path.parent.mkdir()
            path.write_bytes(os.urandom(20_000))
        writers = [start(WRITE_FOR_A_WHILE, path, name, 0.2) for name in "abcd"]
        said = [writer.communicate(timeout=60) for writer in writers]

        assert [writer.returncode for writer in writers] == [0, 0, 0, 0], said
        with open_for_reading(path) as connection:
            assert len(recent_runs(connection, limit=100_000)) == sum(int(runs) for runs, _ in said)
        assert len(list(path.parent.glob("*damaged*.sqlite3"))) == (1 if kind == "damaged" else 0)
