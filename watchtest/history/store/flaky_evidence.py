"""What proves that a test is flaky: it passed and failed on one tree in one environment. In transactions of the
caller's.

Only runs that came to their own end count, and only boxes that nobody has changed by hand: a failure that a
`pip install` has mended was none of the test's.
"""

from __future__ import annotations

from collections.abc import Iterable

from watchtest.history.queries.timeline import PackReader
from watchtest.history.store.columns import JUDGED_STATES, PASSED_CODE, Proof
from watchtest.history.store.database import Connection

BY_HAND = " by hand"
MOST_RUNS = 40
"""So many runs of one tree are looked at; a probe makes many."""

_ADD = "INSERT OR IGNORE INTO evidence (test, failed_run, passed_run, proof, at) VALUES (?, ?, ?, ?, ?)"


def add_proof(connection: Connection, run: int, tests: Iterable[int], proof: Proof, at: float) -> None:
    """Of a test that did both in one run."""
    connection.executemany(_ADD, [(test, run, run, int(proof), at) for test in tests])


def compare_with_others(connection: Connection, run: int, at: float) -> None:
    """The run, which has just ended, against the others of its tree and environment."""
    own = connection.execute("SELECT tree, environment, state FROM runs WHERE number = ?", (run,)).fetchone()
    if own["tree"] is None or own["state"] not in JUDGED_STATES or (own["environment"] or "").endswith(BY_HAND):
        return
    states = ", ".join(f"'{state.value}'" for state in sorted(JUDGED_STATES))
    others = connection.execute(
        f"""
        SELECT packs.run, roster, outcomes FROM runs JOIN packs ON packs.run = runs.number
        WHERE tree = ? AND environment IS ? AND runs.number <> ? AND state IN ({states}) AND imported_from IS NULL
        ORDER BY runs.number DESC LIMIT {MOST_RUNS}
        """,
        (own["tree"], own["environment"], run),
    ).fetchall()
    if not others:
        return
    packs = PackReader(connection)
    mine = packs.of_run(run)
    red, green = mine.red(), {test for test, code in mine.outcomes().items() if code == PASSED_CODE}
    for row in others:
        other = packs.unpack(row)
        found = [(test, run, other.run) for test in red if other.code(test) == PASSED_CODE]
        found += [(test, other.run, run) for test in other.red() & green]
        connection.executemany(_ADD, [(*each, int(Proof.RUNS), at) for each in found])
        # One partner is proof enough of each.
        red, green = red - {each[0] for each in found}, green - {each[0] for each in found}
