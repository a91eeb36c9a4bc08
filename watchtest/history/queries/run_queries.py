"""Questions to the history, each a function of a connection from `database_file.reading`. Writes nothing."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from watchtest.core.model import Failure, Lane, Outcome, Result, RunState, Trigger
from watchtest.history.queries.timeline import PackReader
from watchtest.history.store.columns import IS_GATE_OR_PROBE, OUTCOMES, RED_STATES, AttemptKind, workspace_key
from watchtest.history.store.database import Connection, Row
from watchtest.history.store.failure_texts import unpack_failure

MOST_VARIABLES = 500
NAMED_RUNS: Mapping[str, frozenset[RunState]] = {
    "last": frozenset(),
    "last-failed": RED_STATES,
    "last-green": frozenset({RunState.PASSED}),
}
"""The runs that go by a name: the latest in one of these states; no states, any."""


@dataclass(frozen=True, slots=True)
class Timings:
    """How long each part of a run took; None: it did not get so far, or nobody took the time."""

    wait_s: float | None
    """Queued, until its turn came."""
    sync_s: float | None
    """Until the box was there and held the tree."""
    select_s: float | None
    """Until it was known what to run; setup and services are in here."""
    start_s: float | None
    """Until the runner had collected."""
    run_s: float | None
    """Until the end."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run as the history knows it. `counts` speaks of the last attempt of each test."""

    number: int
    """Its place among all runs of the file."""
    id: str
    workspace: str
    lane: Lane
    trigger: Trigger
    selected: int | None
    """How many tests were asked for; None: all."""
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
    """The report of somebody else that it was read from."""

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
    """All that is kept of one run. `results` holds every attempt, in the order of the tests."""

    run: PastRun
    transitions: tuple[Transition, ...]
    results: tuple[PastResult, ...]
    raw_output: str

    @property
    def final_results(self) -> tuple[PastResult, ...]:
        """The last attempt of each test: what it came to."""
        return tuple({past.result.test: past for past in self.results}.values())


def recent_runs(
    connection: Connection,
    *,
    limit: int,
    workspace: str | None = None,
    lane: Lane | None = None,
    states: Collection[RunState] = (),
    since: float | None = None,
    branch: str | None = None,
    only_full: bool = False,
    before: tuple[float, str] | None = None,
) -> tuple[PastRun, ...]:
    """The latest runs, newest first; None and nothing mean any. `only_full`: only those of all tests. `before`: when a
    run was queued, and its id. By the time of a run, not of its number: a report that was imported may be old."""
    where, values = runs_where(workspace=workspace, lane=lane, states=states, since=since)
    if branch is not None:
        where, values = f"{where} AND branch = ?", (*values, branch)
    if only_full:
        where += " AND selected IS NULL"
    if before is not None:
        where, values = f"{where} AND (queued_at, id) < (?, ?)", (*values, *before)
    order = "queued_at DESC, id DESC"
    rows = connection.execute(f"SELECT * FROM runs WHERE {where} ORDER BY {order} LIMIT ?", (*values, limit))
    return tuple(past_run(connection, row) for row in rows.fetchall())


def runs_where(
    *,
    workspace: str | None = None,
    lane: Lane | None = None,
    states: Collection[RunState] = (),
    since: float | None = None,
) -> tuple[str, tuple[str | float, ...]]:
    """A condition on `runs`, and its values."""
    conditions, values = ["1"], list[str | float]()
    if workspace is not None:
        conditions.append("workspace = ?")
        values.append(workspace_key(workspace))
    if lane is not None:
        conditions.append("lane = ?")
        values.append(lane.value)
    if states:
        conditions.append(f"state IN ({', '.join('?' * len(states))})")
        values.extend(state.value for state in states)
    if since is not None:
        conditions.append("queued_at >= ?")
        values.append(since)
    return " AND ".join(conditions), tuple(values)


def workspaces_with_open_runs(connection: Connection) -> tuple[tuple[str, bool], ...]:
    """The workspaces that have a run without an end; and whether it is one of a gate or a probe."""
    rows = connection.execute(
        f"SELECT DISTINCT workspace, {IS_GATE_OR_PROBE} AS is_gate FROM runs WHERE ended_at IS NULL"
    )
    return tuple((row["workspace"], bool(row["is_gate"])) for row in rows)


def full_verdict(connection: Connection, tree: str, environment: str) -> PastRun | None:
    """The last run that spoke for every test of this very tree in this environment; None: nobody has yet."""
    ends = (*RED_STATES, RunState.PASSED, RunState.NO_TESTS)
    row = connection.execute(
        f"""
        SELECT * FROM runs WHERE tree = ? AND environment = ? AND (selected IS NULL OR is_proof)
                             AND imported_from IS NULL AND state IN ({", ".join("?" * len(ends))})
        ORDER BY number DESC LIMIT 1
        """,
        (tree, environment, *(end.value for end in ends)),
    ).fetchone()
    return None if row is None else past_run(connection, row)


def last_full_results(connection: Connection, workspace: str) -> Mapping[str, Result]:
    """Outcome and duration of every test in the last run of all tests of a workspace; without the failures' words."""
    ends = (RunState.PASSED, RunState.FAILED)
    row = connection.execute(
        """
        SELECT number FROM runs WHERE workspace = ? AND selected IS NULL AND imported_from IS NULL AND state IN (?, ?)
        ORDER BY number DESC LIMIT 1
        """,
        (workspace_key(workspace), *(end.value for end in ends)),
    ).fetchone()
    if row is None:
        return {}
    packs = PackReader(connection)
    pack, durations = packs.of_run(row["number"]), packs.durations(row["number"])
    names = test_ids(connection, pack.tests)
    return {
        names[test]: _brief_result(names[test], OUTCOMES[code], microseconds)
        for test, code, microseconds in zip(pack.tests, pack.codes, durations, strict=True)
    }


def test_ids(connection: Connection, tests: Collection[int]) -> dict[int, str]:
    """The ids of tests by their numbers."""
    found: dict[int, str] = {}
    wanted = list(tests)
    for start in range(0, len(wanted), MOST_VARIABLES):
        some = wanted[start : start + MOST_VARIABLES]
        places = ", ".join("?" * len(some))
        rows = connection.execute(f"SELECT number, identity FROM tests WHERE number IN ({places})", some)
        found.update((row["number"], row["identity"]) for row in rows)
    return found


def _brief_result(test: str, outcome: Outcome, microseconds: int) -> Result:
    return Result(test, outcome, microseconds / 1_000_000, Failure("", "") if outcome.is_red else None)


def find_run(connection: Connection, name: str, workspace: str | None = None) -> PastRun | None:
    """The run of this id, or the one that goes by this name (`NAMED_RUNS`) in the workspace; None: there is none."""
    if name in NAMED_RUNS:
        found = recent_runs(connection, limit=1, workspace=workspace, states=NAMED_RUNS[name])
        return found[0] if found else None
    row = connection.execute("SELECT * FROM runs WHERE id = ?", (name,)).fetchone()
    return None if row is None else past_run(connection, row)


def run_detail(connection: Connection, name: str, workspace: str | None = None) -> RunDetail | None:
    """The run of this id, or the one that goes by this name (`NAMED_RUNS`) in the workspace; None: there is none."""
    run = find_run(connection, name, workspace)
    if run is None:
        return None
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
    """Every attempt of every test, in the order of the tests."""
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
    rows = [tuple(row) for row in connection.execute(_ATTEMPTS, (run,))]
    packs = PackReader(connection)
    pack, durations = packs.of_run(run), packs.durations(run)
    several = {test for test, *_ in rows}
    rows += [
        (test, 1, code, microseconds, AttemptKind.WORD)
        for test, code, microseconds in zip(pack.tests, pack.codes, durations, strict=True)
        if test not in several
    ]
    names = test_ids(connection, pack.tests)
    found = []
    for test, attempt, code, microseconds, kind in rows:
        failure, signature = failures.get((test, attempt), (None, ""))
        result = Result(names[test], OUTCOMES[code], microseconds / 1_000_000, failure)
        found.append(PastResult(result, attempt, AttemptKind(kind), signature))
    return tuple(sorted(found, key=lambda each: (each.result.test, each.attempt)))


_ATTEMPTS = "SELECT test, attempt, outcome, duration_us, kind FROM results WHERE run = ?"


def past_run(connection: Connection, row: Row) -> PastRun:
    """A row of `runs` as a value."""
    return PastRun(
        number=row["number"],
        id=row["id"],
        workspace=row["workspace"],
        lane=Lane(row["lane"]),
        trigger=Trigger(row["trigger"]),
        selected=row["selected"],
        because=row["because"],
        is_forced=bool(row["is_forced"]),
        state=RunState(row["state"]),
        reason=row["reason"],
        queued_at=row["queued_at"],
        ended_at=row["ended_at"],
        tree=row["tree"],
        head=row["head"],
        branch=row["branch"],
        is_dirty=None if row["is_dirty"] is None else bool(row["is_dirty"]),
        environment=row["environment"],
        counts=_counts(connection, row),
        timings=_timings(row),
        imported_from=row["imported_from"],
    )


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
