"""Find tests by name, including the names that they had before."""

from __future__ import annotations

from dataclasses import dataclass

from watchtest.history.store.columns import storable_text
from watchtest.history.store.database import Connection, Row
from watchtest.history.store.pack import PackReader

MOST_FOUND = 50
SEPARATORS = ("::", ".", "/")
"""What can stand before a name in an id."""
RUNS_SEARCHED = 200


@dataclass(frozen=True, slots=True)
class PastTest:
    """A test under its current name, with the numbers of all the names that it has had."""

    identity: str
    numbers: tuple[int, ...]
    former: tuple[str, ...] = ()
    """Its earlier names, latest first."""


def find_tests(connection: Connection, wanted: str) -> tuple[PastTest, ...]:
    """Return the test with this id, now or earlier; else all tests whose id contains the text, ignoring case."""
    wanted = storable_text(wanted)
    exact = connection.execute("SELECT * FROM tests WHERE identity = ?", (wanted,)).fetchone()
    if exact is not None:
        return (past_test(connection, exact),)
    pattern = wanted.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")

    def like(pattern: str) -> tuple[PastTest, ...]:
        rows = connection.execute(
            "SELECT * FROM tests WHERE identity LIKE ? ESCAPE '\\' ORDER BY identity LIMIT ?", (pattern, MOST_FOUND)
        ).fetchall()
        return tuple({each.identity: each for each in (past_test(connection, row) for row in rows)}.values())

    # `test_a` must find test_a even if there is a test_ab.
    endings = tuple(f"{separator}{wanted}" for separator in SEPARATORS)
    complete = [each for each in like(f"%{pattern}") if each.identity.endswith(endings)]
    return tuple(complete) if len(complete) == 1 else like(f"%{pattern}%")


def past_test(connection: Connection, row: Row) -> PastTest:
    """Return the test of a row of `tests`, with its whole lineage."""
    lineage = row["lineage"] or row["number"]
    rows = connection.execute(
        "SELECT number, identity FROM tests WHERE lineage = ? OR number = ? ORDER BY number DESC", (lineage, lineage)
    ).fetchall()
    # Usually the highest number is the current name, but a test may have got an earlier name back.
    if len(rows) > 1:
        rows.sort(key=lambda each: (_last_run(connection, each["number"]), each["number"]), reverse=True)
    names = [each["identity"] for each in rows]
    return PastTest(names[0], tuple(each["number"] for each in rows), tuple(names[1:]))


def _last_run(connection: Connection, test: int) -> int:
    """Return the last of the latest runs that had this test, or 0."""
    packs = PackReader(connection).newest_first(most=RUNS_SEARCHED)
    return next((pack.run for pack in packs if pack.code(test)), 0)


def lineages(connection: Connection) -> dict[int, int]:
    """Return the lineage of each renamed test by its number. Every other test is its own lineage."""
    rows = connection.execute("SELECT number, lineage FROM tests WHERE lineage IS NOT NULL")
    return {row["number"]: row["lineage"] for row in rows}
