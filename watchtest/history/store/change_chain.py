"""What changed between the trees of two runs: each run says what differs from the one before it, as a chain. Pure.

TreeHistory themselves are not kept. A path that changed and was changed back between two runs did not change.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from watchtest.core.model import Delta, Entry, difference

DIGEST_LENGTH = 16
"""So much of a digest tells the versions of one path apart."""

Versions = Mapping[str, str | None]
"""By path: which version of it there is; None: it is not there."""


@dataclass(frozen=True, slots=True)
class Link:
    """How a run's tree differs from that of the run `since`."""

    run: int
    since: int
    before: Versions
    after: Versions


def version(entry: Entry) -> str:
    return f"{entry.digest[:DIGEST_LENGTH]}{entry.mode & 0o111:o}"


def versions(entries: Mapping[str, Entry]) -> dict[str, str | None]:
    return {path: version(entry) for path, entry in entries.items()}


def changed_between(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> tuple[Versions, Versions]:
    """The paths that differ, as they were and as they are."""
    delta: Delta = difference(old, new)
    paths = sorted((*delta.write, *delta.remove))
    before = {path: version(old[path]) if path in old else None for path in paths}
    return before, {path: version(new[path]) if path in new else None for path in paths}


def versions_between(old: Versions, new: Versions) -> tuple[Versions, Versions]:
    """The same, where of the older tree only the versions are known."""
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
    """What differs between the trees of two runs; None: the chain between them is broken."""
    if earlier == later:
        return {}, {}
    above_earlier, above_later = _line(links, earlier), _line(links, later)
    common = next((run for run in above_later if run in set(above_earlier)), None)
    if common is None:
        return None
    first, second = _since(links, above_earlier, common), _since(links, above_later, common)
    paths = sorted(first.keys() | second.keys())
    old = {path: first[path][1] if path in first else second[path][0] for path in paths}
    new = {path: second[path][1] if path in second else first[path][0] for path in paths}
    differ = [path for path in paths if old[path] != new[path]]
    return {path: old[path] for path in differ}, {path: new[path] for path in differ}


def _line(links: Mapping[int, Link], run: int) -> list[int]:
    """The run and those that its tree came from, newest first."""
    line = [run]
    while line[-1] in links and links[line[-1]].since < line[-1]:
        line.append(links[line[-1]].since)
    return line


def _since(links: Mapping[int, Link], line: list[int], common: int) -> dict[str, tuple[str | None, str | None]]:
    """By path: as it was in `common`, and as it is in the first of `line`."""
    found: dict[str, tuple[str | None, str | None]] = {}
    for run in reversed(line[: line.index(common)]):
        link = links[run]
        for path, new in link.after.items():
            was = found[path][0] if path in found else link.before[path]
            found[path] = (was, new)
    return found
