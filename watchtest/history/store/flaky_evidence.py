"""Record evidence that a test is flaky: it passed and failed on one tree in one environment.

Only judged runs count, and only clean environments: a failure that `pip install` repaired was not the test's.
All functions run in the caller's transaction.
"""

from __future__ import annotations

from watchtest.core.model import ProvisionalCode
from watchtest.history.store.columns import JUDGED_SQL, JUDGED_STATES, PASSED_CODE, Proof
from watchtest.history.store.database import Connection
from watchtest.history.store.pack import PackReader

PROVISIONAL = tuple(f" {code.ending}" for code in ProvisionalCode)
"""How the names of environments end whose content may change: by the user, or because they are outdated."""
MOST_RUNS = 40
"""How many runs of one tree are compared; a probe makes many."""

_ADD = "INSERT OR IGNORE INTO evidence (test, failed_run, passed_run, proof, at) VALUES (?, ?, ?, ?, ?)"


def add_proof(connection: Connection, run: int, test: int, proof: Proof, at: float) -> None:
    """Record that a test both failed and passed within one run."""
    connection.execute(_ADD, (test, run, run, int(proof), at))


def add_contradictions(connection: Connection, run: int, at: float) -> None:
    """Compare a run that has just ended with the other runs of its tree and environment."""
    own = connection.execute("SELECT tree, environment, state FROM runs WHERE number = ?", (run,)).fetchone()
    if own["tree"] is None or own["state"] not in JUDGED_STATES or (own["environment"] or "").endswith(PROVISIONAL):
        return
    packs = PackReader(connection)
    is_alike = f"tree = ? AND environment IS ? AND state IN ({JUDGED_SQL}) AND imported_from IS NULL"
    values = (own["tree"], own["environment"], run)
    others = list(packs.newest_first(f"{is_alike} AND runs.number <> ?", values, MOST_RUNS))
    if not others:
        return
    mine = packs.of_run(run)
    red, green = mine.red(), {test for test, code in mine.outcomes().items() if code == PASSED_CODE}
    for other in others:
        found = [(test, run, other.run) for test in red if other.code(test) == PASSED_CODE]
        found += [(test, other.run, run) for test in other.red() & green]
        connection.executemany(_ADD, [(*each, int(Proof.RUNS), at) for each in found])
        # One contradicting run per test is proof enough.
        red, green = red - {each[0] for each in found}, green - {each[0] for each in found}
