"""The test map on disk, with the tree and the results that it describes, so that the next watcher can continue.

There is one file per lane, replaced as a whole. If it cannot be read, all tests run once.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watchtest.core.model import Entry, EntryKind, Outcome, Result, Snapshot
from watchtest.core.recorded import Dependencies, FileFingerprint, ImportName, RunRecording
from watchtest.selection.test_map import KINDS, TestMap
from watchtest.workspace.folder import replace_file

log = logging.getLogger(__name__)
VERSION = 4
PLAIN = (*(kind for kind in KINDS if kind != "units"), "opaque")


@dataclass(frozen=True, slots=True)
class SavedMap:
    """A test map, and the tree, box and environment that it describes."""

    environment: str
    box: str
    base: Snapshot
    results: Mapping[str, Result]
    test_map: TestMap
    fingerprints: Mapping[str, FileFingerprint]
    """By the digest of a file's content."""


def save(file: Path, kept: SavedMap) -> None:
    """Write the map atomically. Raises OSError."""
    test_map = kept.test_map
    document = {
        "version": VERSION,
        "environment": kept.environment,
        "box": kept.box,
        "base": {"id": kept.base.id, "head": kept.base.head, "branch": kept.base.branch, "dirty": kept.base.dirty},
        "entries": _entry_rows(kept.base.entries),
        "repository": _entry_rows(kept.base.repository),
        "results": {test: [result.outcome.value, result.duration_s] for test, result in kept.results.items()},
        "things": test_map.things,
        "tests": {test: [test_map.numbers_of(test), test_map.is_opaque(test)] for test in test_map.tests},
        "scopes": {key: _scope_row(test_map.scope(key)) for key in test_map.scope_keys},
        "modules": test_map.modules,
        "tops": sorted(test_map.tops),
        "prints": {digest: _fingerprint_row(known) for digest, known in kept.fingerprints.items()},
    }  # fmt: skip
    data = zlib.compress(json.dumps(document, separators=(",", ":")).encode("utf-8", "surrogatepass"), 1)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, data)


def load(file: Path) -> SavedMap | None:
    """Return the saved map; None if there is none, or if it cannot be read."""
    try:
        document = json.loads(zlib.decompress(file.read_bytes()).decode("utf-8", "surrogatepass"))
        return _kept(document) if document["version"] == VERSION else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, zlib.error, KeyError, TypeError, IndexError, AttributeError) as error:
        log.info("the test map cannot be used: %s: %s", file, error)
        return None


def _kept(document: Mapping[str, Any]) -> SavedMap:
    base = document["base"]
    entries, repository = _entries(document["entries"]), _entries(document.get("repository", {}))
    things = [(kind, tuple(thing) if kind == "units" else thing) for kind, thing in document["things"]]
    test_map = TestMap()
    test_map.learn(
        RunRecording(
            tests={test: _touched(row[0], row[1], things) for test, row in document["tests"].items()},
            scopes={key: _scope(row) for key, row in document["scopes"].items()},
            modules=document["modules"],
            tops=frozenset(document["tops"]),
        ),
        is_proven=True,
    )  # fmt: skip
    return SavedMap(
        environment=document["environment"],
        box=document["box"],
        base=Snapshot(base["id"], entries, (), base["head"], base["branch"], base["dirty"], repository),
        results={
            test: Result(test, Outcome(outcome), seconds) for test, (outcome, seconds) in document["results"].items()
        },
        test_map=test_map,
        fingerprints={digest: _fingerprint(row) for digest, row in document["prints"].items()},
    )


def _entry_rows(entries: Mapping[str, Entry]) -> dict[str, list[Any]]:
    return {path: [entry.kind.value, entry.mode, entry.size, entry.digest] for path, entry in entries.items()}


def _entries(rows: Mapping[str, list[Any]]) -> dict[str, Entry]:
    return {path: Entry(EntryKind(kind), mode, size, digest) for path, (kind, mode, size, digest) in rows.items()}


def _touched(numbers: list[int], is_opaque: bool, things: list[tuple[str, Any]]) -> Dependencies:
    found: dict[str, set[Any]] = {kind: set() for kind in KINDS}
    for number in numbers:
        kind, thing = things[number]
        found[kind].add(thing)
    sets: dict[str, Any] = {kind: frozenset(found[kind]) for kind in KINDS}
    return Dependencies(**sets, opaque=frozenset({"as recorded before"}) if is_opaque else frozenset())


def _scope_row(scope: Dependencies) -> dict[str, Any]:
    row: dict[str, Any] = {kind: sorted(getattr(scope, kind)) for kind in PLAIN if getattr(scope, kind)}
    return {**row, "units": sorted(map(list, scope.units))}


def _scope(row: Mapping[str, Any]) -> Dependencies:
    sets: dict[str, Any] = {kind: frozenset(row.get(kind, ())) for kind in PLAIN}
    return Dependencies(units=frozenset((path, name) for path, name in row["units"]), **sets)


def _fingerprint_row(known: FileFingerprint) -> list[Any]:
    places = [[line, name, list(names)] for (line, name), names in known.places.items()]
    imports = [[one.level, one.module, list(one.names)] for one in known.imports]
    return [known.shell, dict(known.functions), places, sorted(known.writers), imports, known.error]


def _fingerprint(row: list[Any]) -> FileFingerprint:
    shell, functions, places, writers, imports, error = row
    return FileFingerprint(
        shell,
        functions,
        {(line, name): tuple(names) for line, name, names in places},
        frozenset(writers),
        tuple(ImportName(level, module, tuple(names)) for level, module, names in imports),
        error,
    )
