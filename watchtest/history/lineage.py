"""Gives tests of a file that was moved the lineage of the tests they were. In transactions of the caller's."""

from __future__ import annotations

from collections import defaultdict

from watchtest.history.changes import net
from watchtest.history.database import Connection
from watchtest.history.renames import moved_files
from watchtest.history.timeline import Packs
from watchtest.history.trees import links_back

LOOKED_BACK = 10
"""So many runs may lie between the move of a file and the first run of its tests: they were cancelled, or broke."""


def follow_moves(connection: Connection, run: int) -> None:
    """For the tests that were first seen in this run, which has just ended."""
    rows = connection.execute(
        "SELECT number, identity, file FROM tests WHERE first_run = ? AND lineage IS NULL", (run,)
    ).fetchall()
    if not rows:
        return
    links = links_back(connection, run, LOOKED_BACK)
    if not links:
        return
    found = net(links, min(link.since for link in links.values()), run)
    if found is None:
        return
    before, after = found
    ran = set(Packs(connection).one(run).tests)
    names: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row["number"] in ran:
            names[row["file"]].add(_within(row["identity"]))
    if not any(path in after for path in names):
        return
    for path in (path for path, there in after.items() if there is None):
        for row in connection.execute("SELECT identity FROM tests WHERE file = ?", (path,)):
            names[path].add(_within(row["identity"]))
    moved = moved_files(before, after, names)
    for row in rows:
        if row["file"] in moved:
            was = f"{moved[row['file']]}{row['identity'][len(row['file']) :]}"
            line = "SELECT COALESCE(lineage, number) FROM tests WHERE identity = ?"
            connection.execute(f"UPDATE tests SET lineage = ({line}) WHERE number = ?", (was, row["number"]))


def _within(identity: str) -> str:
    return identity.partition("::")[2]
