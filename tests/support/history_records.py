"""Builds histories for tests, one line per run, with the public methods of the store on real files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from watchtest.core.model import (
    All,
    Entry,
    EntryKind,
    Failure,
    Lane,
    Location,
    Only,
    Outcome,
    Result,
    Run,
    RunState,
    Snapshot,
    Trigger,
)
from watchtest.history.queries.run_queries import RunDetail, find_run, run_detail
from watchtest.history.store.columns import AttemptKind
from watchtest.history.store.database import Connection
from watchtest.history.store.store import Store

NOON = 1_700_000_000.0
ENVIRONMENT = "image:1"


def tree(name: str, files: Mapping[str, str]) -> Snapshot:
    entries = {path: Entry(EntryKind.FILE, 0o644, len(text), text) for path, text in files.items()}
    return Snapshot(name, entries, head="c0ffee", branch="main", dirty=True)


def green(test: str, duration_s: float = 0.1) -> Result:
    return Result(test, Outcome.PASSED, duration_s)


def red(test: str, message: str = "assert 1 == 2", function: str = "total") -> Result:
    failure = Failure(
        "AssertionError",
        message,
        Location("tests/t.py", 7),
        crash=Location("src/a.py", 3),
        text=message,
        function=function,
    )
    return Result(test, Outcome.FAILED, 0.2, failure)


def detail_of(connection: Connection, name: str, workspace: str | None = None) -> RunDetail | None:
    run = find_run(connection, name, workspace)
    return None if run is None else run_detail(connection, run)


class Bench:
    """Records runs of one workspace, by default in one lane. Each run begins a minute after the one before."""

    def __init__(self, path: Path, workspace: str = "/w") -> None:
        self.path = path
        self.workspace = workspace
        self.store = Store(path)
        self.now = NOON
        self.runs = 0

    def ran(
        self,
        snapshot: Snapshot | None,
        results: Sequence[Result] = (),
        *,
        checks: Sequence[Result] = (),
        state: RunState | None = None,
        only: bool = False,
        whole: Sequence[str] = (),
        lane: Lane = Lane.SAVE,
        environment: str = ENVIRONMENT,
        session: str = "s",
    ) -> str:
        """Record a complete run and return its id. `checks` follow the results and come from a fresh process; `whole`
        lists the files whose tests were all executed."""
        self.runs += 1
        self.now += 60
        at, name = self.now, f"{session}.{self.runs}"
        tests = (*(result.test for result in results), *whole)
        some = Only(tests, "the change can affect them", is_proof=True)
        run = Run(name, lane, Trigger.SAVE, some if only else All("all tests"))
        self.store.begin(run, at, self.workspace, "a.py changed")
        self.store.start(run, at + 1)
        if snapshot is not None:
            self.store.set_snapshot(name, snapshot, environment, at + 2)
        self.store.set_selection(run, at + 3)
        self.store.advance(name, RunState.RUNNING, at + 4)
        self.store.runner_started(name, at + 6)
        self.store.add_results(name, results, at + 7)
        if checks:
            self.store.add_results(name, checks, at + 8, AttemptKind.CHECK)
        last = {result.test: result for result in (*results, *checks)}
        is_red = any(result.outcome.is_red for result in last.values())
        self.store.end(name, state or (RunState.FAILED if is_red else RunState.PASSED), "", at + 10, "")
        return name


SNAPSHOT = Snapshot(
    "4b825dc6", {"a.py": Entry(EntryKind.FILE, 0o644, 1, "d")}, head="c0ffee", branch="main", dirty=True
)


PASSED = Result("tests/test_a.py::test_one", Outcome.PASSED, 0.25)


FAILED = Result(
    "tests/test_a.py::test_two[x-1]",
    Outcome.FAILED,
    0.5,
    Failure(
        kind="AssertionError",
        message="assert 1 == 2",
        where=Location("tests/test_a.py", 12),
        column=4,
        source_line="    assert one() == 2",
        crash=Location("src/a.py", 3),
        text="def test_two():\nE  assert 1 == 2",
        output="printed",
    ),
)
