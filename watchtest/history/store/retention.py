"""Drop the oldest runs when there are more than the user wants to keep. A run in progress is never dropped.

SQLite reuses freed pages, so the file stays within its limit without being rewritten. Only `watchtest history prune`
returns them to the disk (`Store.shrink`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from watchtest.history.store.database import Connection
from watchtest.history.store.pack import unpack_roster

DAY_S = 86_400.0
MEGABYTE = 1024 * 1024
MARGIN = 0.9
"""A file that is too large shrinks to this part of the limit, so that it does not exceed it again after each run."""
MIN_RUNS_KEPT = 10
"""The latest runs that stay however large the file is: its size may come from data that they share."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """How much is kept; 0 means no limit."""

    days: int = 0
    runs: int = 0
    megabytes: int = 0


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """Which runs to drop and why: those with a number below `first_kept` or queued before `oldest_kept`."""

    first_kept: int
    oldest_kept: float
    runs: int
    oldest_at: float | None
    newest_at: float | None
    reasons: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.runs > 0


def used_bytes(connection: Connection) -> int:
    """Return the size of the file without its free pages."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def plan_pruning(connection: Connection, limits: RetentionLimits, now: float) -> PrunePlan:
    """Return which runs are beyond the limits. Drops nothing."""
    cuts: list[tuple[int, float, str]] = []
    if limits.days:
        # By time, not by number: a run that was imported yesterday may be the oldest.
        cuts.append((0, now - limits.days * DAY_S, f"older than {limits.days} days"))
    if limits.runs:
        cuts.append((_first_of_latest(connection, limits.runs), 0.0, f"beyond the latest {limits.runs} runs"))
    size = used_bytes(connection)
    if limits.megabytes and size > limits.megabytes * MEGABYTE:
        total = connection.execute("SELECT COUNT(*) AS runs FROM runs").fetchone()["runs"]
        # Runs are of similar size, so a part of them takes about the same part of the file.
        kept = max(MIN_RUNS_KEPT, int(total * MARGIN * limits.megabytes * MEGABYTE / size))
        cuts.append((_first_of_latest(connection, kept), 0.0, f"beyond {limits.megabytes} MB"))
    first_kept = max((number for number, _, _ in cuts), default=0)
    oldest_kept = max((at for _, at, _ in cuts), default=0.0)
    found = connection.execute(
        f"SELECT COUNT(*) AS runs, MIN(queued_at) AS oldest, MAX(queued_at) AS newest FROM runs WHERE {_IS_DROPPED}",
        (first_kept, oldest_kept),
    ).fetchone()
    reasons = tuple(
        reason
        for number, at, reason in cuts
        if connection.execute(f"SELECT 1 FROM runs WHERE {_IS_DROPPED} LIMIT 1", (number, at)).fetchone()
    )
    return PrunePlan(first_kept, oldest_kept, found["runs"], found["oldest"], found["newest"], reasons)


def _first_of_latest(connection: Connection, count: int) -> int:
    """Return the number of the first of the latest `count` runs, or 0 if there are fewer."""
    last = "SELECT number FROM runs ORDER BY number DESC LIMIT 1 OFFSET ?"
    row = connection.execute(last, (count - 1,)).fetchone()
    return 0 if row is None else int(row["number"])


_IS_DROPPED = "(number < ? OR queued_at < ?) AND ended_at IS NOT NULL"


def drop_batch(connection: Connection, plan: PrunePlan, batch: int) -> int:
    """Drop the oldest of the planned runs and the data that only they share. Return how many were dropped.

    Runs in the caller's transaction.
    """
    rows = connection.execute(
        f"SELECT number FROM runs WHERE {_IS_DROPPED} ORDER BY number LIMIT ?",
        (plan.first_kept, plan.oldest_kept, batch),
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


_SHARED = (("rosters", "roster", "packs"), ("contents", "content", "failures"), ("signatures", "signature", "failures"))
"""Data that several runs share: a table, and the column and table that refer to it."""


def sweep(connection: Connection) -> None:
    """Delete tests that no run refers to, and manifests of lanes without runs (such as those of removed worktrees).

    Reads every roster. Runs in the caller's transaction.
    """
    used = set(_tests_in_use(connection))
    # The former name of a test stays as long as the test.
    rows = connection.execute("SELECT number, COALESCE(lineage, number) AS lineage FROM tests").fetchall()
    lineages = {row["lineage"] for row in rows if row["number"] in used}
    unused = [(row["number"],) for row in rows if row["number"] not in used and row["lineage"] not in lineages]
    connection.executemany("DELETE FROM tests WHERE number = ?", unused)
    has_run = "EXISTS (SELECT 1 FROM runs WHERE (workspace, lane) = (manifests.workspace, manifests.lane))"
    connection.execute(f"DELETE FROM manifests WHERE NOT {has_run}")


def _tests_in_use(connection: Connection) -> Iterator[int]:
    for row in connection.execute("SELECT tests FROM rosters"):
        yield from unpack_roster(row["tests"])
    for row in connection.execute(
        "SELECT test FROM results UNION SELECT test FROM failures UNION SELECT test FROM evidence"
    ):
        yield row["test"]
