"""How large a history grows and how quickly it answers: 20,000 runs of 500 tests, ten million results.

    python tests/bench/history_size.py [--runs 20000] [--tests 500] [--folder DIR] [--seed 1]

The store's own compaction writes the history, with failures, changed files and selections as in a year of work. Then
the command line answers each question, including the start of Python. What counts is processor time, which is how long
a user waits on an otherwise idle machine. Last, it measures what the watcher's writing costs in a run of 100 tests, as
a share of that run. With --folder the history is kept there and reused.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from watchtest.core.model import All, Failure, Lane, Location, Only, Outcome, Result, Run, RunState, Trigger
from watchtest.history.queries.flaky_tests import flaky_now
from watchtest.history.store.columns import OUTCOME_CODES, RED_STATES
from watchtest.history.store.database import Connection, transaction
from watchtest.history.store.database_file import history_path, open_for_writing
from watchtest.history.store.failure_texts import add_failure
from watchtest.history.store.flaky_evidence import add_contradictions
from watchtest.history.store.pack import add_pack
from watchtest.history.store.store import Store
from watchtest.history.store.tree_changes import pack_changes

LIMIT_S = 0.300
SIZE_LIMIT_MB = 256
SHARE_LIMIT = 0.05
DAY_S = 86_400.0
FULL_EVERY = 3
"""Every third run covers all tests; the others are recorded as partial, with the same number of results."""
ROUNDS = 5
PASSED, FAILED, SKIPPED = (OUTCOME_CODES[each] for each in (Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED))


def names(tests: int) -> list[str]:
    return [
        f"tests/part_{number // 25}/test_module_{number // 5}.py::TestCase::test_{number}" for number in range(tests)
    ]


def fill(connection: Connection, workspace: str, runs: int, tests: int, random: Random) -> None:
    ids = names(tests)
    connection.executemany(
        "INSERT INTO tests (number, identity, file, first_run) VALUES (?, ?, ?, 1)",
        [(number, test, test.partition("::")[0]) for number, test in enumerate(ids, 1)],
    )
    usual = [int(random.lognormvariate(9.5, 1.5)) for _ in range(tests)]
    skipped = set(random.sample(range(tests), tests // 50))
    began = time.time() - 200 * DAY_S
    red: set[int] = set()
    for number in range(1, runs + 1):
        at = began + number * 200 * DAY_S / runs
        if random.random() < 0.2:
            red = set(random.sample(range(tests), random.choice((0, 0, 1, 1, 2, 5))))
        flaky = {7} if random.random() < 0.05 else set()
        codes = bytearray([PASSED]) * tests
        for each in skipped:
            codes[each] = SKIPPED
        for each in red | flaky:
            codes[each] = FAILED
        _add_run(connection, workspace, number, at, codes, random)
        durations = [max(1, int(spent * random.gauss(1.0, 0.1))) for spent in usual]
        add_pack(connection, number, range(1, tests + 1), bytes(codes), durations)
        for each in red | flaky:
            add_failure(connection, number, each + 1, 1, _failure(each, random))
        before, after = {f"src/m{number % 40}.py": f"{number}"}, {f"src/m{number % 40}.py": f"{number + 1}"}
        connection.execute(
            "INSERT INTO changes (run, since, paths) VALUES (?, ?, ?)",
            (number, number - 1, pack_changes((before, after))),
        )
        if number % 4 == 0:
            add_contradictions(connection, number, at)


def _add_run(connection: Connection, workspace: str, number: int, at: float, codes: bytearray, random: Random) -> None:
    is_red = FAILED in codes
    state = RunState.FAILED if is_red else RunState.PASSED
    tree = f"{(number // 2 if random.random() < 0.1 else number):040x}"
    values = {
        "number": number,
        "id": f"{number // 100:06x}.{number % 100}",
        "workspace": workspace,
        "lane": "save",
        "trigger": "save",
        "selected": None if number % FULL_EVERY == 0 else len(codes),
        "because": f"src/m{number % 40}.py changed: functions that 500 tests enter",
        "is_proof": 1,
        "is_forced": 0,
        "state": state.value,
        "queued_at": at,
        "started_at": at + 0.1,
        "taken_at": at + 0.2,
        "chosen_at": at + 0.25,
        "executing_at": at + 0.3,
        "first_at": at + 0.6,
        "ended_at": at + 6.0,
        "tree": tree,
        "head": f"{number // 20:040x}",
        "branch": "main",
        "is_dirty": 1,
        "environment": "docker python:3.13 0123456789ab 0123456789abcdef 01234567",
        "passed": codes.count(PASSED),
        "failed": codes.count(FAILED),
        "error": 0,
        "skipped": codes.count(SKIPPED),
        "xfailed": 0,
        "xpassed": 0,
    }
    connection.execute(
        f"INSERT INTO runs ({', '.join(values)}) VALUES ({', '.join(f':{name}' for name in values)})", values
    )
    steps = (("queued", at), ("syncing", at + 0.1), ("running", at + 0.3), (state.value, at + 6.0))
    connection.executemany(
        "INSERT INTO run_states (run, position, state, reason, at) VALUES (?, ?, ?, ?, ?)",
        [(number, place, name, "", when) for place, (name, when) in enumerate(steps, 1)],
    )
    assert (state in RED_STATES) is is_red


def _failure(test: int, random: Random) -> Failure:
    lines = "\n".join(f"    line {number} of the report of test {test}" for number in range(30))
    return Failure(
        "AssertionError",
        f"assert {random.randrange(50)} == {test}",
        Location(f"tests/test_{test}.py", 12),
        crash=Location("src/m.py", 3),
        text=lines,
        output=f"printed at {random.randrange(20)}",
        function=f"compute_{test % 20}",
    )


def make(path: Path, workspace: str, runs: int, tests: int, seed: int) -> float:
    began = time.perf_counter()
    connection = open_for_writing(path, print)
    random = Random(seed)
    with transaction(connection):
        fill(connection, workspace, runs, tests, random)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return time.perf_counter() - began


def asked(folder: Path, state: Path, *words: str) -> tuple[float, float]:
    """Return the median seconds of processor time and of waiting over a few rounds. The output is discarded."""
    environ = {**os.environ, "WATCHTEST_STATE_DIR": str(state), "COLUMNS": "120"}
    command = [sys.executable, "-m", "watchtest", "-C", str(folder), "history", *words]
    spent, waited = [], []
    for _ in range(ROUNDS):
        began, before = time.perf_counter(), _children_s()
        subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
        waited.append(time.perf_counter() - began)
        spent.append(_children_s() - before)
    return statistics.median(spent), statistics.median(waited)


def _children_s() -> float:
    now = os.times()
    return now.children_user + now.children_system


# -- what writing costs ----------------------------------------------------------------------------


def written(path: Path, tests: int) -> float:
    """Return the seconds of processor time that the history takes to record a run of this many tests, reported in
    batches at the end of a long history."""
    store = Store(path)
    ids = names(tests)
    spent = []
    for number in range(30):
        run = Run(f"w.{number}", Lane.SAVE, Trigger.SAVE, Only(tuple(ids), "changed") if number % 2 else All("all"))
        began = time.process_time()
        store.begin(run, 1.0, "/w")
        store.start(run, 1.1)
        store.advance(run.id, RunState.RUNNING, 1.2)
        for batch in _batches(ids, 10):
            store.add_results(run.id, [Result(test, Outcome.PASSED, 0.01) for test in batch], 2.0)
        store.end(run.id, RunState.PASSED, "", 3.0, "100 passed in 0.3s\n")
        store.query(lambda connection: flaky_now(connection, "/w", time.time()))
        spent.append(time.process_time() - began)
    store.close()
    return statistics.median(spent)


def _batches(ids: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


def run_of_tests(folder: Path, tests: int) -> float:
    """Return the seconds of processor time pytest takes for this many trivial tests: the cheapest run to compare
    with."""
    project = folder / "trivial"
    project.mkdir()
    (project / "test_trivial.py").write_text(
        "".join(f"def test_{each}():\n    assert True\n\n" for each in range(tests))
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", str(project)]
    spent = []
    for _ in range(ROUNDS):
        before = _children_s()
        subprocess.run(command, cwd=project, check=True, stdout=subprocess.DEVNULL)
        spent.append(_children_s() - before)
    return statistics.median(spent)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--tests", type=int, default=500)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        base = arguments.folder or Path(scratch)
        project, state = base / "project", base / "state"
        (project / ".git").mkdir(parents=True, exist_ok=True)
        path = history_path(state, project)
        if not path.exists():
            spent = make(path, os.path.realpath(project), arguments.runs, arguments.tests, arguments.seed)
            print(f"made {arguments.runs} runs of {arguments.tests} tests in {spent:.0f} s")
        size = path.stat().st_size / 1024 / 1024
        print(f"size  {size:8.1f} MB   limit {SIZE_LIMIT_MB} MB   {'ok' if size < SIZE_LIMIT_MB else 'TOO LARGE'}")
        is_good = size < SIZE_LIMIT_MB
        test = names(arguments.tests)[7]
        questions = (
            ("--help",),
            ("list",),
            ("test", test),
            ("flaky",),
            ("trend",),
            ("trend", "--since", "all"),
            ("show",),
            ("slowest",),
            ("analyse", "last-failed"),
            ("compare", "last-failed", "last-green"),
            ("cost", "--since", "all"),
        )
        for words in questions:
            spent, waited = asked(project, state, *words)
            counts = words[0] in ("list", "test", "flaky", "trend")
            verdict = ("ok" if spent < LIMIT_S else "TOO SLOW") if counts else ""
            is_good = is_good and verdict != "TOO SLOW"
            print(f"{' '.join(words)[:50]:50} {spent * 1000:6.0f} ms  (waited {waited * 1000:4.0f} ms)  {verdict}")
        copy = Path(scratch) / "writing.sqlite3"
        shutil.copy(path, copy)
        share = written(copy, 100) / run_of_tests(Path(scratch), 100)
        is_good = is_good and share < SHARE_LIMIT
        print(f"writing a run of 100 tests: {share:.1%} of it   {'ok' if share < SHARE_LIMIT else 'TOO MUCH'}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
