"""Query runs and their results."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from watchtest.core.model import Failure, Lane, Outcome, Provisional, ProvisionalCode, Result, RunState, Trigger
from watchtest.history.store import columns
from watchtest.history.store.columns import OUTCOMES, RED_STATES, AttemptKind
from watchtest.history.store.database import Connection, Row
from watchtest.history.store.failure_texts import unpack_failure
from watchtest.history.store.pack import PackReader

MOST_VARIABLES = 500
_PLAIN_COLUMNS = (
    *("number", "id", "workspace", "selected", "because", "reason", "queued_at", "ended_at"),
    *("tree", "head", "branch", "environment", "imported_from"),
)
"""The columns of `runs` whose values a PastRun has under the same names."""
NAMED_RUNS: Mapping[str, frozenset[RunState]] = {
    "last": frozenset(),
    "last-failed": RED_STATES,
    "last-green": frozenset({RunState.PASSED}),
}
"""Names for the latest run in one of these states; an empty set means any state."""


@dataclass(frozen=True, slots=True)
class Timings:
    """How long each phase of a run took; None if the run did not get that far or the time was not recorded."""

    wait_s: float | None
    """In the queue."""
    sync_s: float | None
    """Until the box existed and contained the tree."""
    select_s: float | None
    """Until the tests were selected; includes setup and services."""
    start_s: float | None
    """Until the runner had collected the tests."""
    run_s: float | None
    """From there to the end."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run in the history. `counts` counts the last attempt of each test."""

    number: int
    """Its position among all runs of the file."""
    id: str
    workspace: str
    lane: Lane
    trigger: Trigger
    selected: int | None
    """How many tests were selected; None means all."""
    because: str
    is_forced: bool
    state: RunState
    reason: str
    queued_at: float
    ended_at: float | None
    tree: str | None
    head: str | None
    branch: str | None
    is_dirty: bool | None
    environment: str | None
    counts: Mapping[Outcome, int]
    timings: Timings
    imported_from: str | None = None
    """The report that it was imported from."""
    provisional: Provisional | None = None
    """Why its verdict is provisional."""

    @property
    def duration_s(self) -> float | None:
        return None if self.ended_at is None else self.ended_at - self.queued_at


@dataclass(frozen=True, slots=True)
class Transition:
    state: RunState
    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class PastResult:
    result: Result
    attempt: int
    kind: AttemptKind = AttemptKind.WORD
    signature: str = ""


@dataclass(frozen=True, slots=True)
class RunDetail:
    """Everything that is stored about one run. `results` has every attempt, ordered by test."""

    run: PastRun
    transitions: tuple[Transition, ...]
    results: tuple[PastResult, ...]
    raw_output: str

    @property
    def final_results(self) -> tuple[PastResult, ...]:
        """Return the last attempt of each test."""
        return tuple({past.result.test: past for past in self.results}.values())


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs a query considers: those that meet all given conditions."""

    workspace: str | None = None
    lane: Lane | None = None
    states: Collection[RunState] = ()
    since: float | None = None
    branch: str | None = None
    only_full: bool = False
    """Only runs of all tests."""
    before: tuple[float, str] | None = None
    """Only runs before the one that was queued at this time and has this id."""

    def sql(self) -> tuple[str, tuple[str | float, ...]]:
        """Return the conditions on `runs`, and their values."""
        found: list[tuple[str, tuple[str | float, ...]]] = [("1", ())]
        if self.workspace is not None:
            found.append(("workspace = ?", (columns.workspace_key(self.workspace),)))
        if self.lane is not None:
            found.append(("lane = ?", (self.lane.value,)))
        if self.states:
            found.append((f"state IN ({places(self.states)})", tuple(state.value for state in self.states)))
        if self.since is not None:
            found.append(("queued_at >= ?", (self.since,)))
        if self.branch is not None:
            found.append(("branch = ?", (self.branch,)))
        if self.only_full:
            found.append(("selected IS NULL", ()))
        if self.before is not None:
            found.append(("(queued_at, id) < (?, ?)", self.before))
        return " AND ".join(condition for condition, _ in found), tuple(each for _, values in found for each in values)


ALL_RUNS = RunFilter()


def recent_runs(connection: Connection, runs: RunFilter = ALL_RUNS, *, limit: int) -> tuple[PastRun, ...]:
    """Return the latest of the runs, newest first: by time, not by number, because an imported run may be old."""
    where, values = runs.sql()
    order = "queued_at DESC, id DESC"
    rows = connection.execute(f"SELECT * FROM runs WHERE {where} ORDER BY {order} LIMIT ?", (*values, limit))
    return tuple(past_run(connection, row) for row in rows.fetchall())


def places(values: Collection[object]) -> str:
    """Return the placeholders in SQL for these values."""
    return ", ".join("?" * len(values))


def workspaces_with_open_runs(connection: Connection) -> tuple[tuple[str, bool], ...]:
    """Return the workspaces with an unfinished run, and whether it is a run of a gate or a probe."""
    rows = connection.execute(
        f"SELECT DISTINCT workspace, {columns.IS_GATE_OR_PROBE} AS is_gate FROM runs WHERE ended_at IS NULL"
    )
    return tuple((row["workspace"], bool(row["is_gate"])) for row in rows)


def full_verdict(connection: Connection, tree: str, environment: str) -> PastRun | None:
    """Return the last run with a final verdict on every test of this tree in this environment, or None."""
    ends = (*RED_STATES, RunState.PASSED, RunState.NO_TESTS)
    is_full = "tree = ? AND environment = ? AND (selected IS NULL OR is_proof)"
    is_full += " AND imported_from IS NULL AND provisional IS NULL"
    values = (tree, environment, *(end.value for end in ends))
    return _last_run(connection, f"{is_full} AND state IN ({places(ends)})", values)


def _last_run(connection: Connection, where: str, values: Sequence[str]) -> PastRun | None:
    row = connection.execute(f"SELECT * FROM runs WHERE {where} ORDER BY number DESC LIMIT 1", values).fetchone()
    return None if row is None else past_run(connection, row)


def last_full_results(connection: Connection, workspace: str) -> Mapping[str, Result]:
    """Return outcome and duration of every test in the last full run of a workspace, without failure texts."""
    is_full = f"selected IS NULL AND imported_from IS NULL AND state IN ({columns.JUDGED_SQL})"
    run = _last_run(connection, f"workspace = ? AND {is_full}", (columns.workspace_key(workspace),))
    results = {} if run is None else results_by_number(connection, run.number)
    return {result.test: result for result in results.values()}


def results_by_number(connection: Connection, run: int) -> dict[int, Result]:
    """Return the last attempt of each test of a run by the number of the test, without failure texts."""
    results = PackReader(connection).results(run)
    names = ids_of_tests(connection, [test for test, *_ in results])
    failures = dict.fromkeys(columns.RED_CODES, Failure("", ""))
    return {
        test: Result(names[test], OUTCOMES[code], microseconds / 1_000_000, failures.get(code))
        for test, code, microseconds in results
    }


def ids_of_tests(connection: Connection, tests: Collection[int]) -> dict[int, str]:
    """Return the ids of tests by their numbers."""
    found: dict[int, str] = {}
    wanted = list(tests)
    for start in range(0, len(wanted), MOST_VARIABLES):
        some = wanted[start : start + MOST_VARIABLES]
        rows = connection.execute(f"SELECT number, identity FROM tests WHERE number IN ({places(some)})", some)
        found.update((row["number"], row["identity"]) for row in rows)
    return found


def find_run(connection: Connection, name: str, workspace: str | None = None) -> PastRun | None:
    """Return the run with this id, or the one that `NAMED_RUNS` gives this name in the workspace, or None."""
    if name in NAMED_RUNS:
        return next(iter(recent_runs(connection, RunFilter(workspace, states=NAMED_RUNS[name]), limit=1)), None)
    return _last_run(connection, "id = ?", (name,))


def run_detail(connection: Connection, run: PastRun) -> RunDetail:
    """Return everything that is stored about a run."""
    states = connection.execute(
        "SELECT state, at, reason FROM run_states WHERE run = ? ORDER BY position", (run.number,)
    )
    output = connection.execute("SELECT text FROM outputs WHERE run = ?", (run.number,)).fetchone()
    return RunDetail(
        run=run,
        transitions=tuple(Transition(RunState(each["state"]), each["at"], each["reason"]) for each in states),
        results=results_of(connection, run.number),
        raw_output="" if output is None else zlib.decompress(output["text"]).decode(),
    )


def results_of(connection: Connection, run: int) -> tuple[PastResult, ...]:
    """Return every attempt of every test, ordered by test."""
    failures = {
        (row["test"], row["attempt"]): (unpack_failure(row["document"]), row["signature"])
        for row in connection.execute(
            """
            SELECT test, attempt, document, signatures.text AS signature FROM failures
            JOIN contents ON contents.number = content JOIN signatures ON signatures.number = signature WHERE run = ?
            """,
            (run,),
        )
    }
    attempts = "SELECT test, attempt, outcome, duration_us, kind FROM results WHERE run = ?"
    rows = [tuple(row) for row in connection.execute(attempts, (run,))]
    results = PackReader(connection).results(run)
    repeated = {test for test, *_ in rows}
    rows += [
        (test, 1, code, microseconds, AttemptKind.WORD) for test, code, microseconds in results if test not in repeated
    ]
    names = ids_of_tests(connection, [test for test, *_ in results])
    found = []
    for test, attempt, code, microseconds, kind in rows:
        failure, signature = failures.get((test, attempt), (None, ""))
        result = Result(names[test], OUTCOMES[code], microseconds / 1_000_000, failure)
        found.append(PastResult(result, attempt, AttemptKind(kind), signature))
    return tuple(sorted(found, key=lambda each: (each.result.test, each.attempt)))


def run_by_number(connection: Connection, number: int) -> PastRun:
    return past_run(connection, connection.execute("SELECT * FROM runs WHERE number = ?", (number,)).fetchone())


def past_run(connection: Connection, row: Row) -> PastRun:
    """Return the run that a row of `runs` describes."""
    return PastRun(
        **{name: row[name] for name in _PLAIN_COLUMNS},
        lane=Lane(row["lane"]),
        trigger=Trigger(row["trigger"]),
        is_forced=bool(row["is_forced"]),
        state=RunState(row["state"]),
        is_dirty=None if row["is_dirty"] is None else bool(row["is_dirty"]),
        counts=_counts(connection, row),
        timings=_timings(row),
        provisional=_provisional(row),
    )


def _provisional(row: Row) -> Provisional | None:
    code = row["provisional"]
    return None if code is None else Provisional(ProvisionalCode(code), row["provisional_because"])


def _counts(connection: Connection, row: Row) -> Mapping[Outcome, int]:
    if row["passed"] is not None:
        return {outcome: row[outcome.value] for outcome in Outcome if row[outcome.value]}
    codes = PackReader(connection).of_run(row["number"]).codes
    counted = {outcome: codes.count(code) for code, outcome in OUTCOMES.items()}
    return {outcome: counted[outcome] for outcome in Outcome if counted[outcome]}


def _timings(row: Row) -> Timings:
    executing, first = row["executing_at"], row["first_at"]
    return Timings(
        wait_s=_between(row["queued_at"], row["started_at"]),
        sync_s=_between(row["started_at"], row["taken_at"]),
        select_s=_between(row["taken_at"], row["chosen_at"] or executing),
        start_s=_between(executing, first),
        run_s=_between(first or executing, row["ended_at"]),
    )


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, end - start)
