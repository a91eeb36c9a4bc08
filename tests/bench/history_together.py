"""Two processes write a history and ten read it for a minute: there is no error and nothing is lost.

    python tests/bench/history_together.py [--seconds 60] [--writers 2] [--readers 10]

Readers ask what a user asks: the list, a run, a test, flaky, trend. Each run is reported in batches and ended; every
third has a red test. At the end every run that a writer has reported is there and complete.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from watchtest.history.queries.run_queries import recent_runs
from watchtest.history.store.database_file import open_for_reading

WRITER = """
import sys, time
from pathlib import Path
from watchtest.core.model import All, Failure, Lane, Outcome, Result, Run, RunState, Snapshot, Trigger
from watchtest.history.store.store import Store
path, name, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
deadline, runs, longest = time.monotonic() + seconds, 0, 0.0
with Store(path) as store:
    while time.monotonic() < deadline:
        runs += 1
        began = time.monotonic()
        run = Run(f"{name}.{runs}", Lane.SAVE, Trigger.SAVE, All("all"))
        store.begin(run, time.time(), "/w")
        store.set_snapshot(run.id, Snapshot(f"t{runs // 2}", {}), "e", time.time())
        for batch in range(5):
            results = [Result(f"t.py::{batch * 20 + i}", Outcome.PASSED, 0.01) for i in range(20)]
            if runs % 3 == 0 and batch == 2:
                results[7] = Result(results[7].test, Outcome.FAILED, 0.01, Failure("K", f"said {runs}", text="x" * 500))
            store.add_results(run.id, results, time.time())
        store.end(run.id, RunState.FAILED if runs % 3 == 0 else RunState.PASSED, "", time.time(), "output")
        longest = max(longest, time.monotonic() - began)
print(runs, longest)
"""
READER = """
import sys, time
from pathlib import Path
from watchtest.history.queries.flaky_tests import flaky_tests
from watchtest.history.store.database_file import history_exists, open_for_reading
from watchtest.history.queries.run_queries import RunFilter, find_run, recent_runs, run_detail
from watchtest.history.queries.test_history import history_of
from watchtest.history.queries.test_names import find_tests
from watchtest.history.queries.trends import trend
path, seconds = Path(sys.argv[1]), float(sys.argv[3])
deadline, asked, longest = time.monotonic() + seconds, 0, 0.0
while time.monotonic() < deadline:
    if not history_exists(path):
        time.sleep(0.01)
        continue
    began = time.monotonic()
    with open_for_reading(path) as connection:
        for run in recent_runs(connection, limit=20):
            assert run.ended_at is None or sum(run.counts.values()) == 100, run
        run = find_run(connection, "last")
        run and run_detail(connection, run)
        for test in find_tests(connection, "t.py::47"):
            history_of(connection, test, RunFilter("/w"), limit=60)
        flaky_tests(connection, RunFilter("/w"), time.time())
        trend(connection, RunFilter("/w"), "day")
    longest = max(longest, time.monotonic() - began)
    asked += 1
print(asked, longest)
"""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--readers", type=int, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "history.sqlite3"
        names = [f"w{number}" for number in range(arguments.writers)]
        programs = [(WRITER, name) for name in names] + [(READER, "reader")] * arguments.readers
        began = time.monotonic()
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", program, str(path), name, str(arguments.seconds)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for program, name in programs
        ]
        said = [process.communicate(timeout=arguments.seconds + 120) for process in processes]
        errors = [error for _, error in said if error]
        for error in errors:
            print(error, file=sys.stderr)
        if errors or any(process.returncode for process in processes):
            print("FAILED: an error, see above")
            return 1
        numbers = [(int(out.split()[0]), float(out.split()[1])) for out, _ in said]
        expected = {f"{name}.{n + 1}" for name, (runs, _) in zip(names, numbers, strict=False) for n in range(runs)}
        with open_for_reading(path) as connection:
            runs = recent_runs(connection, limit=10_000_000)
        is_whole = {run.id for run in runs} == expected and {sum(run.counts.values()) for run in runs} == {100}
        written, asked = numbers[: arguments.writers], numbers[arguments.writers :]
        spent, runs_written, rounds = time.monotonic() - began, sum(n for n, _ in written), sum(n for n, _ in asked)
        print(f"{spent:.0f} s: {runs_written} runs written, {rounds} rounds asked")
        longest = max(s for _, s in written), max(s for _, s in asked)
        print(f"longest: a run {longest[0]:.2f} s, a round of questions {longest[1]:.2f} s")
        print("nothing lost" if is_whole else "FAILED: runs or results are missing")
        return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
