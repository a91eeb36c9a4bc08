"""Which test a user means, and what it was called before. Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from watchtest.history.store.columns import text
from watchtest.history.store.database import Connection, Row

MOST_FOUND = 50
MARKS = ("::", ".", "/")
"""What stands before a name in an id."""


@dataclass(frozen=True, slots=True)
class PastTest:
    """A test by its latest name, with all the numbers it was kept under."""

    identity: str
    numbers: tuple[int, ...]
    former: tuple[str, ...] = ()
    """What it was called before, latest first."""


def find_tests(connection: Connection, wanted: str) -> tuple[PastTest, ...]:
    """The test of that very id, whatever it is called now; else all whose id contains the text, any case."""
    wanted = text(wanted)
    exact = connection.execute("SELECT * FROM tests WHERE identity = ?", (wanted,)).fetchone()
    if exact is not None:
        return (past_test(connection, exact),)
    pattern = wanted.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")

    def like(pattern: str) -> tuple[PastTest, ...]:
        rows = connection.execute(
            "SELECT * FROM tests WHERE identity LIKE ? ESCAPE '\\' ORDER BY identity LIMIT ?", (pattern, MOST_FOUND)
        ).fetchall()
        return tuple({each.identity: each for each in (past_test(connection, row) for row in rows)}.values())

    # `test_a` shall find test_a and not stumble over test_ab.
    whole = tuple(f"{mark}{wanted}" for mark in MARKS)
    ending = [each for each in like(f"%{pattern}") if each.identity.endswith(whole)]
    return tuple(ending) if len(ending) == 1 else like(f"%{pattern}%")


def past_test(connection: Connection, row: Row) -> PastTest:
    """A row of `tests` with all of its lineage."""
    line = row["lineage"] or row["number"]
    rows = connection.execute(
        "SELECT number, identity FROM tests WHERE lineage = ? OR number = ? ORDER BY number DESC", (line, line)
    ).fetchall()
    # A name that was given back is the older number: what ran last is what it is called.
    if len(rows) > 1:
        rows.sort(key=lambda each: (_last_run(connection, each["number"]), each["number"]), reverse=True)
    names = [each["identity"] for each in rows]
    return PastTest(names[0], tuple(each["number"] for each in rows), tuple(names[1:]))


def _last_run(connection: Connection, test: int) -> int:
    """A hint at which of several names is in use: the last of the latest runs that it was seen in."""
    from watchtest.history.queries.timeline import PackReader

    return next((pack.run for pack in PackReader(connection).newest_first(most=200) if pack.code(test)), 0)


def lineages(connection: Connection) -> dict[int, int]:
    """By number: the lineage of tests that were renamed. All others are their own."""
    rows = connection.execute("SELECT number, lineage FROM tests WHERE lineage IS NOT NULL")
    return {row["number"]: row["lineage"] for row in rows}
