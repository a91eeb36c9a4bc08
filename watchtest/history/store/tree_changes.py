"""Store what changed from the tree of one run to that of the next, in the caller's transaction.

The last tree of each lane is held in memory. After a start it is rebuilt from the one complete tree (the manifest) that
the file has for the lane, and the changes since then.
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
"""After this many runs the manifest is written again, because the runs in between may be dropped one day."""
LONGEST_WALK = 5000

LaneKey = tuple[str, str]
"""A workspace and a lane."""


@dataclass(frozen=True, slots=True)
class _LastTree:
    run: int
    snapshot: Snapshot
    manifest: int
    """The run whose tree is stored as the manifest."""


class TreeHistory:
    """Adds the trees of runs to the file as links to the tree before."""

    def __init__(self) -> None:
        self._last: dict[LaneKey, _LastTree] = {}

    def add(self, connection: Connection, run: int, lane: LaneKey, snapshot: Snapshot) -> None:
        last = self._last.get(lane)
        manifest = last.manifest if last is not None else 0
        if last is not None:
            before, after = changed_between(last.snapshot.entries, snapshot.entries)
            _add_link(connection, run, last.run, before, after)
        elif (earlier := _stored_tree(connection, lane)) is not None:
            since, tree = earlier
            before, after = versions_between(tree, versions(snapshot.entries))
            _add_link(connection, run, since, before, after)
        if run - manifest > MANIFEST_AGE or last is None:
            manifest = run
            connection.execute(
                "INSERT OR REPLACE INTO manifests (workspace, lane, run, versions) VALUES (?, ?, ?, ?)",
                (*lane, run, pack_versions(versions(snapshot.entries))),
            )
        self._last[lane] = _LastTree(run, snapshot, manifest)

    def forget(self) -> None:
        """Drop the trees in memory, because the file may not contain them."""
        self._last.clear()


def changes_between(connection: Connection, earlier: int, later: int) -> tuple[Versions, Versions] | None:
    """Return the versions of all paths that differ between the trees of two runs, or None if that is unknown."""
    links: dict[int, Link] = {}
    ends = [earlier, later]
    # Walk back from the later one of the two until both are at a common run.
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


def _stored_tree(connection: Connection, lane: LaneKey) -> tuple[int, Versions] | None:
    """Return the last run of the lane whose tree can be rebuilt, and that tree."""
    row = connection.execute("SELECT run, versions FROM manifests WHERE workspace = ? AND lane = ?", lane).fetchone()
    if row is None:
        return None
    manifest, tree = int(row["run"]), unpack_versions(row["versions"])
    last = connection.execute(
        """
        SELECT MAX(changes.run) AS run FROM changes JOIN runs ON runs.number = changes.run
        WHERE workspace = ? AND lane = ? AND changes.run > ?
        """,
        (*lane, manifest),
    ).fetchone()["run"]
    found = changes_between(connection, manifest, last) if last is not None else None
    if found is None:
        return manifest, tree
    tree.update(found[1])
    return last, {path: version for path, version in tree.items() if version is not None}


def _add_link(connection: Connection, run: int, since: int, before: Versions, after: Versions) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO changes (run, since, paths) VALUES (?, ?, ?)", (run, since, pack_link(before, after))
    )
