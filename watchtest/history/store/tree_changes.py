"""What changed between the trees of two runs, and its storage in the caller's transaction.

Trees themselves are not stored. Each run stores how its tree differs from that of an earlier run; these links form a
chain. A path that was changed and changed back between two runs counts as unchanged.

The last tree of each lane is held in memory. After a start it is rebuilt from the one complete tree (the manifest) that
the file has for the lane, and the changes since then.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from watchtest.core.model import Delta, Entry, Snapshot, difference
from watchtest.history.store.database import Connection

DIGEST_LENGTH = 16
"""This many characters of a digest suffice to tell the versions of one path apart."""

Versions = Mapping[str, str | None]
"""The version of each path; None if the path does not exist."""


@dataclass(frozen=True, slots=True)
class Link:
    """How the tree of a run differs from that of the run `since`."""

    run: int
    since: int
    before: Versions
    after: Versions


def version(entry: Entry) -> str:
    return f"{entry.digest[:DIGEST_LENGTH]}{entry.mode & 0o111:o}"


def versions(entries: Mapping[str, Entry]) -> dict[str, str | None]:
    return {path: version(entry) for path, entry in entries.items()}


def changed_between(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> tuple[Versions, Versions]:
    """Return the versions of all differing paths before and after."""
    delta: Delta = difference(old, new)
    paths = sorted((*delta.write, *delta.remove))
    before = {path: version(old[path]) if path in old else None for path in paths}
    return before, {path: version(new[path]) if path in new else None for path in paths}


def versions_between(old: Versions, new: Versions) -> tuple[Versions, Versions]:
    """Like `changed_between`, for trees of which only the versions are known."""
    paths = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    return {path: old.get(path) for path in paths}, {path: new.get(path) for path in paths}


def pack_link(before: Versions, after: Versions) -> bytes:
    return _pack([[path, before[path], after[path]] for path in after])


def unpack_link(run: int, since: int, blob: bytes) -> Link:
    rows = json.loads(zlib.decompress(blob))
    return Link(run, since, {path: old for path, old, _ in rows}, {path: new for path, _, new in rows})


def pack_versions(tree: Versions) -> bytes:
    return _pack(tree)


def unpack_versions(blob: bytes) -> dict[str, str | None]:
    tree = json.loads(zlib.decompress(blob))
    return tree if isinstance(tree, dict) else {}


def _pack(content: object) -> bytes:
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode("utf-8", "backslashreplace"), 1)


def net_changes(links: Mapping[int, Link], earlier: int, later: int) -> tuple[Versions, Versions] | None:
    """Return the versions of all paths that differ between the trees of two runs, or None if the chain is broken."""
    if earlier == later:
        return {}, {}
    before_earlier, before_later = _ancestors(links, earlier), _ancestors(links, later)
    common = next((run for run in before_later if run in set(before_earlier)), None)
    if common is None:
        return None
    first, second = _changes_since(links, before_earlier, common), _changes_since(links, before_later, common)
    paths = sorted(first.keys() | second.keys())
    old = {path: first[path][1] if path in first else second[path][0] for path in paths}
    new = {path: second[path][1] if path in second else first[path][0] for path in paths}
    differ = [path for path in paths if old[path] != new[path]]
    return {path: old[path] for path in differ}, {path: new[path] for path in differ}


def _ancestors(links: Mapping[int, Link], run: int) -> list[int]:
    """Return the run and those that its tree derives from, newest first."""
    runs = [run]
    while runs[-1] in links and links[runs[-1]].since < runs[-1]:
        runs.append(links[runs[-1]].since)
    return runs


def _changes_since(links: Mapping[int, Link], runs: list[int], common: int) -> dict[str, tuple[str | None, str | None]]:
    """Return for each changed path its version in `common` and in the first of `runs`."""
    found: dict[str, tuple[str | None, str | None]] = {}
    for run in reversed(runs[: runs.index(common)]):
        link = links[run]
        for path, new in link.after.items():
            was = found[path][0] if path in found else link.before[path]
            found[path] = (was, new)
    return found


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
