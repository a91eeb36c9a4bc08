"""Turns the rows of a run that has ended into its pack, and counts them. In a transaction of the caller's.

Results are rows while they come, so that a kill loses none of them; a run that is over is far smaller as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from watchtest.core.model import Outcome
from watchtest.history.store.columns import OUTCOME_CODES, PASSED_CODE
from watchtest.history.store.database import Connection, Row
from watchtest.history.store.pack import pack_durations, pack_outcomes, pack_roster

_COUNTS = ", ".join(f"{outcome.value} = ?" for outcome in Outcome)


def compact(connection: Connection, run: int) -> None:
    """The last attempt of each test is its result; the others stay as rows where not all of them were green."""
    rows = connection.execute(
        "SELECT test, attempt, outcome, duration_us FROM results WHERE run = ? ORDER BY test, attempt", (run,)
    ).fetchall()
    last: dict[int, Row] = {row["test"]: row for row in rows}
    repeated = {row["test"] for row in rows if row["attempt"] > 1}
    several = {row["test"] for row in rows if row["test"] in repeated and row["outcome"] != PASSED_CODE}
    codes = bytes(row["outcome"] for row in last.values())
    if last:
        add_pack(connection, run, list(last), codes, (row["duration_us"] for row in last.values()))
    if not several:
        connection.execute("DELETE FROM results WHERE run = ?", (run,))
    else:
        connection.executemany(
            "DELETE FROM results WHERE run = ? AND test = ?", [(run, test) for test in last if test not in several]
        )
    counts = [codes.count(OUTCOME_CODES[outcome]) for outcome in Outcome]
    connection.execute(f"UPDATE runs SET {_COUNTS} WHERE number = ?", (*counts, run))


def add_pack(connection: Connection, run: int, tests: Sequence[int], codes: bytes, durations: Iterable[int]) -> None:
    """`tests` ascending, each with its outcome and its duration in microseconds."""
    blob, digest = pack_roster(tests)
    roster = connection.execute("SELECT number FROM rosters WHERE digest = ?", (digest,)).fetchone()
    number = (
        connection.execute("INSERT INTO rosters (digest, tests) VALUES (?, ?)", (digest, blob)).lastrowid
        if roster is None
        else roster["number"]
    )
    outcomes = pack_outcomes(codes)
    connection.execute("INSERT INTO packs (run, roster, outcomes) VALUES (?, ?, ?)", (run, number, outcomes))
    connection.execute("INSERT INTO timings (run, durations) VALUES (?, ?)", (run, pack_durations(durations)))
