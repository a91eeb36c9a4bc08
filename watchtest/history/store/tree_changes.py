"""What changed between the trees of two runs, and its storage in the caller's transaction.

Trees themselves are not stored. Each run stores how its tree differs from that of an earlier run; these links form a
chain. A path that was changed and changed back between two runs counts as unchanged.

The last tree of each lane is held in memory. After a start it is rebuilt from the one complete tree (the manifest) that
the file has for the lane, and the changes since then.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from watchtest.core.model import Entry, Snapshot, difference
from watchtest.history.store.database import Connection

DIGEST_LENGTH = 16
"""This many characters of a digest suffice to tell the versions of one path apart."""
MANIFEST_AGE = 200
"""After this many runs the manifest is written again, because the runs in between may be dropped one day."""
LONGEST_WALK = 5000

Versions = Mapping[str, str | None]
"""The version of each path; None if the path does not exist."""
Changes = tuple[Versions, Versions]
"""The versions of all paths that differ between two trees, before and after."""
LaneKey = tuple[str, str]
"""A workspace and a lane."""


def version(entry: Entry) -> str:
    return f"{entry.digest[:DIGEST_LENGTH]}{entry.mode & 0o111:o}"


def versions(entries: Mapping[str, Entry]) -> dict[str, str | None]:
    return {path: version(entry) for path, entry in entries.items()}


def changed_between(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> Changes:
    """Return how two trees differ."""
    paths = sorted(difference(old, new).paths)
    before = {path: version(old[path]) if path in old else None for path in paths}
    return before, {path: version(new[path]) if path in new else None for path in paths}


def versions_between(old: Versions, new: Versions) -> Changes:
    """Return how two trees differ of which only the versions are known."""
    paths = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    return {path: old.get(path) for path in paths}, {path: new.get(path) for path in paths}


def net_changes(first: Sequence[Changes], second: Sequence[Changes]) -> Changes:
    """Return how two trees differ that both derive from a common tree, each by a chain of changes, newest first."""
    (base_of_first, old), (base_of_second, new) = _sum(first), _sum(second)
    base = {**base_of_first, **base_of_second}
    return versions_between({**base, **old}, {**base, **new})


def _sum(chain: Sequence[Changes]) -> Changes:
    before: dict[str, str | None] = {}
    after: dict[str, str | None] = {}
    for old, _ in chain:
        before.update(old)
    for _, new in reversed(chain):
        after.update(new)
    return before, after


def pack_changes(changes: Changes) -> bytes:
    before, after = changes
    return _pack([[path, before[path], after[path]] for path in after])


def unpack_changes(blob: bytes) -> Changes:
    rows = json.loads(zlib.decompress(blob))
    return {path: old for path, old, _ in rows}, {path: new for path, _, new in rows}


def _pack(content: object) -> bytes:
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode("utf-8", "backslashreplace"), 1)


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
        link: tuple[int, Changes] | None = None
        if last is not None:
            link = last.run, changed_between(last.snapshot.entries, snapshot.entries)
        elif (stored := _stored_tree(connection, lane)) is not None:
            link = stored[0], versions_between(stored[1], versions(snapshot.entries))
        if link is not None:
            values = (run, link[0], pack_changes(link[1]))
            connection.execute("INSERT OR REPLACE INTO changes (run, since, paths) VALUES (?, ?, ?)", values)
        manifest = last.manifest if last is not None else None
        if manifest is None or run - manifest > MANIFEST_AGE:
            manifest = run
            connection.execute(
                "INSERT OR REPLACE INTO manifests (workspace, lane, run, versions) VALUES (?, ?, ?, ?)",
                (*lane, run, _pack(versions(snapshot.entries))),
            )
        self._last[lane] = _LastTree(run, snapshot, manifest)

    def forget(self) -> None:
        """Drop the trees in memory, because the file may not contain them."""
        self._last.clear()


def changes_between(connection: Connection, earlier: int, later: int) -> Changes | None:
    """Return how the trees of two runs differ, or None if that is unknown."""
    chains: tuple[list[Changes], list[Changes]] = ([], [])
    ends = [earlier, later]
    # Walk back from the later one of the two until both are at a common run.
    while ends[0] != ends[1]:
        younger = ends.index(max(ends))
        row = connection.execute("SELECT since, paths FROM changes WHERE run = ?", (ends[younger],)).fetchone()
        if row is None or row["since"] >= ends[younger] or len(chains[0]) + len(chains[1]) >= LONGEST_WALK:
            return None
        chains[younger].append(unpack_changes(row["paths"]))
        ends[younger] = row["since"]
    return net_changes(*chains)


def _stored_tree(connection: Connection, lane: LaneKey) -> tuple[int, Versions] | None:
    """Return the last run of the lane whose tree can be rebuilt, and that tree."""
    row = connection.execute("SELECT run, versions FROM manifests WHERE workspace = ? AND lane = ?", lane).fetchone()
    if row is None:
        return None
    manifest, tree = int(row["run"]), json.loads(zlib.decompress(row["versions"]))
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
    return last, {path: version for path, version in {**tree, **found[1]}.items() if version is not None}
