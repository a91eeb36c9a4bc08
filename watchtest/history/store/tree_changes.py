"""Keeps what changed from the tree of one run to that of the next. In transactions of the caller's.

The tree of the last run of each lane is held in memory; after a start it is put together from the one whole tree that
the file holds for the lane and the changes since.
"""

from __future__ import annotations

from dataclasses import dataclass

from watchtest.core.model import Snapshot
from watchtest.history.store.change_chain import (
    Link,
    Versions,
    changed_between,
    net_changes,
    pack_link,
    pack_versions,
    unpack_link,
    unpack_versions,
    versions,
    versions_between,
)
from watchtest.history.store.database import Connection

MANIFEST_AGE = 200
"""After so many runs the whole tree is written anew: those between may be dropped one day."""
LONGEST_WALK = 5000


@dataclass(frozen=True, slots=True)
class _LastTree:
    run: int
    snapshot: Snapshot
    manifest: int
    """The run whose whole tree is in the file."""


class TreeHistory:
    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], _LastTree] = {}

    def add(self, connection: Connection, run: int, place: tuple[str, str], snapshot: Snapshot) -> None:
        """`place`: workspace and lane."""
        seen = self._seen.get(place)
        manifest = seen.manifest if seen is not None else 0
        if seen is not None:
            before, after = changed_between(seen.snapshot.entries, snapshot.entries)
            _add_link(connection, run, seen.run, before, after)
        elif (earlier := _tree_before(connection, place)) is not None:
            since, tree = earlier
            before, after = versions_between(tree, versions(snapshot.entries))
            _add_link(connection, run, since, before, after)
        if run - manifest > MANIFEST_AGE or seen is None:
            manifest = run
            connection.execute(
                "INSERT OR REPLACE INTO manifests (workspace, lane, run, versions) VALUES (?, ?, ?, ?)",
                (*place, run, pack_versions(versions(snapshot.entries))),
            )
        self._seen[place] = _LastTree(run, snapshot, manifest)

    def forget(self) -> None:
        """What is in the file is not what was written last: it is read again."""
        self._seen.clear()


def changes_between(connection: Connection, earlier: int, later: int) -> tuple[Versions, Versions] | None:
    """The paths that differ between the trees of two runs, as they were and as they are; None: nobody knows."""
    links: dict[int, Link] = {}
    ends = [earlier, later]
    # Back from whichever is younger, until both are at the run that they have in common.
    while ends[0] != ends[1]:
        younger = ends.index(max(ends))
        link = _link(connection, ends[younger])
        if link is None or len(links) >= LONGEST_WALK:
            return None
        links[link.run] = link
        ends[younger] = link.since
    return net_changes(links, earlier, later)


def _link(connection: Connection, run: int) -> Link | None:
    row = connection.execute("SELECT since, paths FROM changes WHERE run = ?", (run,)).fetchone()
    return unpack_link(run, row["since"], row["paths"]) if row is not None and row["since"] < run else None


def _tree_before(connection: Connection, place: tuple[str, str]) -> tuple[int, Versions] | None:
    """The last run of that lane whose tree can be told, and that tree."""
    row = connection.execute("SELECT run, versions FROM manifests WHERE workspace = ? AND lane = ?", place).fetchone()
    if row is None:
        return None
    whole, tree = int(row["run"]), unpack_versions(row["versions"])
    last = connection.execute(
        """
        SELECT MAX(changes.run) AS run FROM changes JOIN runs ON runs.number = changes.run
        WHERE workspace = ? AND lane = ? AND changes.run > ?
        """,
        (*place, whole),
    ).fetchone()["run"]
    if last is None:
        return whole, tree
    found = changes_between(connection, whole, last)
    if found is None:
        return whole, tree
    tree.update(found[1])
    return last, {path: version for path, version in tree.items() if version is not None}


def _add_link(connection: Connection, run: int, since: int, before: Versions, after: Versions) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO changes (run, since, paths) VALUES (?, ?, ?)", (run, since, pack_link(before, after))
    )
