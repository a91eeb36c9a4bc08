"""What is dropped when there is more than the user wants to keep: the oldest runs, whole. Never one under way.

Pages that become free are used again, so the file stays within its limit without being rewritten; giving them back to
the disk (`shrink`) is for the command that the user types.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from watchtest.history.store.database import Connection
from watchtest.history.store.pack import unpack_roster

DAY_S = 86_400.0
MEGABYTE = 1024 * 1024
MARGIN = 0.9
"""When the file is too large, it is brought to so much of the limit: not each run shall be followed by another look."""
KEPT_IN_ANY_CASE = 10
"""So many of the latest runs stay, however large the file is: what they share may be what is large."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """What is kept at most; 0 is no limit."""

    days: int = 0
    runs: int = 0
    megabytes: int = 0


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """The runs before `first_kept` would go, and those that were queued before `oldest_kept`, and why."""

    first_kept: int
    oldest_kept: float
    runs: int
    oldest_at: float | None
    newest_at: float | None
    reasons: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.runs > 0


def used_bytes(connection: Connection) -> int:
    """What the history takes of the file, without pages that are free for what comes next."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def plan_pruning(connection: Connection, limits: RetentionLimits, now: float) -> PrunePlan:
    """Reads a few numbers; drops nothing."""
    cuts: list[tuple[int, float, str]] = []
    if limits.days:
        # By its own time each: what was imported yesterday may be older than all that was there before.
        cuts.append((0, now - limits.days * DAY_S, f"older than {limits.days} days"))
    if limits.runs:
        row = connection.execute(
            "SELECT number FROM runs ORDER BY number DESC LIMIT 1 OFFSET ?", (limits.runs - 1,)
        ).fetchone()
        cuts.append((row["number"] if row is not None else 0, 0.0, f"beyond the latest {limits.runs} runs"))
    size = used_bytes(connection)
    if limits.megabytes and size > limits.megabytes * MEGABYTE:
        total = connection.execute("SELECT COUNT(*) AS runs FROM runs").fetchone()["runs"]
        # Runs are much of one size: so large a part of them is so large a part of the file.
        kept = max(KEPT_IN_ANY_CASE, int(total * MARGIN * limits.megabytes * MEGABYTE / size))
        row = connection.execute("SELECT number FROM runs ORDER BY number DESC LIMIT 1 OFFSET ?", (kept,)).fetchone()
        cuts.append((row["number"] + 1 if row is not None else 0, 0.0, f"beyond {limits.megabytes} MB"))
    first_kept = max((number for number, _, _ in cuts), default=0)
    oldest_kept = max((at for _, at, _ in cuts), default=0.0)
    found = connection.execute(
        f"SELECT COUNT(*) AS runs, MIN(queued_at) AS oldest, MAX(queued_at) AS newest FROM runs WHERE {_GOES}",
        (first_kept, oldest_kept),
    ).fetchone()
    reasons = tuple(
        reason
        for number, at, reason in cuts
        if connection.execute(f"SELECT 1 FROM runs WHERE {_GOES} LIMIT 1", (number, at)).fetchone()
    )
    return PrunePlan(first_kept, oldest_kept, found["runs"], found["oldest"], found["newest"], reasons)


_GOES = "(number < ? OR queued_at < ?) AND ended_at IS NOT NULL"


def drop_batch(connection: Connection, plan: PrunePlan, most: int) -> int:
    """The oldest of them, with the words that only they said, in a transaction of the caller's; how many."""
    rows = connection.execute(
        f"SELECT number FROM runs WHERE {_GOES} ORDER BY number LIMIT ?",
        (plan.first_kept, plan.oldest_kept, most),
    ).fetchall()
    runs = [(row["number"],) for row in rows]
    shared = {
        (table, column, owner): {
            row[0] for run in runs for row in connection.execute(f"SELECT {column} FROM {owner} WHERE run = ?", run)
        }
        for table, column, owner in _SHARED
    }
    connection.executemany("DELETE FROM runs WHERE number = ?", runs)
    for (table, column, owner), numbers in shared.items():
        is_used = f"EXISTS (SELECT 1 FROM {owner} WHERE {column} = {table}.number)"
        connection.executemany(
            f"DELETE FROM {table} WHERE number = ? AND NOT {is_used}", [(number,) for number in numbers]
        )
    return len(rows)


_SHARED = (
    ("rosters", "roster", "packs"),
    ("contents", "content", "failures"),
    ("signatures", "signature", "failures"),
)
"""What runs share: a table, and who refers to it by which column."""


def sweep(connection: Connection) -> None:
    """Forgets tests that no run speaks of any more, and the trees of lanes (of worktrees that were removed, for one)
    that have no run. Reads every roster; in a transaction of the caller's."""
    used = set(_tests_in_use(connection))
    # The name that a test had before stays as long as the test.
    rows = connection.execute("SELECT number, COALESCE(lineage, number) AS line FROM tests").fetchall()
    lines = {row["line"] for row in rows if row["number"] in used}
    gone = [(row["number"],) for row in rows if row["number"] not in used and row["line"] not in lines]
    connection.executemany("DELETE FROM tests WHERE number = ?", gone)
    has_run = "EXISTS (SELECT 1 FROM runs WHERE (workspace, lane) = (manifests.workspace, manifests.lane))"
    connection.execute(f"DELETE FROM manifests WHERE NOT {has_run}")


def _tests_in_use(connection: Connection) -> Iterator[int]:
    for row in connection.execute("SELECT tests FROM rosters"):
        yield from unpack_roster(row["tests"])
    for row in connection.execute(
        "SELECT test FROM results UNION SELECT test FROM failures UNION SELECT test FROM evidence"
    ):
        yield row["test"]
