"""Questions to the history, each a function of a connection from `opening.reading`. Writes nothing."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from watchtest.core.model import Failure, Lane, Outcome, Place, Result, RunState, Trigger
from watchtest.history.database import Connection, Row
from watchtest.history.rows import workspace_key
from watchtest.history.schema import OUTCOME_CODES

OUTCOMES = {code: outcome for outcome, code in OUTCOME_CODES.items()}

RED = frozenset({RunState.FAILED, RunState.ERROR, RunState.TIMED_OUT})
NAMED: Mapping[str, frozenset[RunState]] = {
    "last": frozenset(),
    "last-failed": RED,
    "last-green": frozenset({RunState.PASSED}),
}
"""The runs that go by a name: the latest in one of these states; no states, any."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run as the history knows it. `counts` speaks of the last attempt of each test."""

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


@dataclass(frozen=True, slots=True)
class Transition:
    state: RunState
    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class PastResult:
    result: Result
    attempt: int


@dataclass(frozen=True, slots=True)
class RunDetail:
    """All that is kept of one run. `results` holds every attempt, in the order of the tests."""

    run: PastRun
    transitions: tuple[Transition, ...]
    results: tuple[PastResult, ...]
    raw_output: str


def recent(
    connection: Connection,
    *,
    limit: int,
    workspace: str | None = None,
    lane: Lane | None = None,
    states: Collection[RunState] = (),
    before: tuple[float, str] | None = None,
) -> tuple[PastRun, ...]:
    """The latest runs, newest first; None and nothing mean any. `before`: when a run was queued, and its id."""
    conditions, values = ["1"], list[str | int | float]()
    if before is not None:
        conditions.append("(queued_at, id) < (?, ?)")
        values.extend(before)
    if workspace is not None:
        conditions.append("workspace = ?")
        values.append(workspace_key(workspace))
    if lane is not None:
        conditions.append("lane = ?")
        values.append(lane.value)
    if states:
        conditions.append(f"state IN ({', '.join('?' * len(states))})")
        values.extend(state.value for state in states)
    rows = connection.execute(
        f"SELECT * FROM runs WHERE {' AND '.join(conditions)} ORDER BY number DESC LIMIT ?", (*values, limit)
    )
    return tuple(_run(connection, row) for row in rows.fetchall())


def judged(connection: Connection, tree: str, environment: str) -> PastRun | None:
    """The last run that spoke for every test of this very tree in this environment; None: nobody has yet."""
    ends = (*RED, RunState.PASSED, RunState.NO_TESTS)
    row = connection.execute(
        f"""
        SELECT * FROM runs WHERE tree = ? AND environment = ? AND (selected IS NULL OR is_proof)
                             AND state IN ({", ".join("?" * len(ends))}) ORDER BY number DESC LIMIT 1
        """,
        (tree, environment, *(end.value for end in ends)),
    ).fetchone()
    return None if row is None else _run(connection, row)


def last_whole(connection: Connection, workspace: str) -> Mapping[str, Result]:
    """Outcome and duration of every test in the last run of all tests of a workspace; without the failures' words."""
    ends = (RunState.PASSED, RunState.FAILED)
    row = connection.execute(
        """
        SELECT number FROM runs WHERE workspace = ? AND selected IS NULL AND state IN (?, ?)
        ORDER BY number DESC LIMIT 1
        """,
        (workspace_key(workspace), *(end.value for end in ends)),
    ).fetchone()
    if row is None:
        return {}
    rows = connection.execute(
        """
        SELECT identity, outcome, duration_us FROM results JOIN tests ON tests.number = results.test
        WHERE run = ? ORDER BY attempt
        """,
        (row["number"],),
    )
    return {each["identity"]: _in_short(each) for each in rows.fetchall() if each["outcome"] in OUTCOMES}


def _in_short(row: Row) -> Result:
    outcome = OUTCOMES[row["outcome"]]
    failure = Failure("", "") if outcome.is_red else None
    return Result(row["identity"], outcome, row["duration_us"] / 1_000_000, failure)


def detail(connection: Connection, name: str, workspace: str | None = None) -> RunDetail | None:
    """The run of this id, or the one that goes by this name (`NAMED`) in the workspace; None: there is none."""
    run_id = name
    if name in NAMED:
        found = recent(connection, limit=1, workspace=workspace, states=NAMED[name])
        if not found:
            return None
        run_id = found[0].id
    row = connection.execute("SELECT * FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        return None
    number = row["number"]
    states = connection.execute("SELECT state, at, reason FROM run_states WHERE run = ? ORDER BY position", (number,))
    results = connection.execute(
        """
        SELECT tests.identity, results.attempt, outcome, duration_us, kind, message, failures.file, line, column_number,
               source_line, crash_file, crash_line, text, output
        FROM results
        JOIN tests ON tests.number = results.test
        LEFT JOIN failures ON failures.run = results.run AND failures.test = results.test
                          AND failures.attempt = results.attempt
        WHERE results.run = ? ORDER BY tests.identity, results.attempt
        """,
        (number,),
    )
    output = connection.execute("SELECT text FROM outputs WHERE run = ?", (number,)).fetchone()
    return RunDetail(
        run=_run(connection, row),
        transitions=tuple(Transition(RunState(each["state"]), each["at"], each["reason"]) for each in states),
        results=tuple(_result(each) for each in results),
        raw_output="" if output is None else zlib.decompress(output["text"]).decode(),
    )


def _run(connection: Connection, row: Row) -> PastRun:
    return PastRun(
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
        counts=_counts(connection, row["number"]),
    )


def _counts(connection: Connection, number: int) -> Mapping[Outcome, int]:
    # SQLite takes `outcome` from the row that holds the maximum.
    rows = connection.execute(
        """
        SELECT outcome, COUNT(*) AS tests FROM (SELECT outcome, MAX(attempt) FROM results WHERE run = ? GROUP BY test)
        GROUP BY outcome
        """,
        (number,),
    )
    counted = {OUTCOMES[row["outcome"]]: row["tests"] for row in rows}
    return {outcome: counted[outcome] for outcome in Outcome if outcome in counted}


def _result(row: Row) -> PastResult:
    failure = None
    if row["kind"] is not None:
        failure = Failure(
            kind=row["kind"],
            message=row["message"],
            where=_place(row["file"], row["line"]),
            column=row["column_number"],
            source_line=row["source_line"],
            crash=_place(row["crash_file"], row["crash_line"]),
            text=row["text"],
            output=row["output"],
        )
    result = Result(row["identity"], OUTCOMES[row["outcome"]], row["duration_us"] / 1_000_000, failure)
    return PastResult(result, row["attempt"])


def _place(file: str | None, line: int | None) -> Place | None:
    return None if file is None or line is None else Place(file, line)
