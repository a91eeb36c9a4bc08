"""Why a test runs or does not, and who depends on a file, as documents for a command, a key or an API. Only asks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from watchtest.affected.atlas import Atlas
from watchtest.core.affected import Finding
from watchtest.core.model import All, Only, Selection
from watchtest.core.touching import FILE, FIXTURE, IMPORT, LIBRARY, MEMO, SESSION
from watchtest.core.verdict import file_of

MOST = 50
"""Names of one kind that are listed; the rest is counted."""


class Known(Protocol):
    """What a lane's selector knows."""

    atlas: Atlas
    found: tuple[Finding, ...]
    """Why the last selection was what it was."""
    last: Selection | None

    def reach(self, paths: Iterable[str]) -> int: ...


def explain(selector: Known, what: str) -> dict[str, Any] | None:
    """Of a test, else of a file; None if nothing is known of either."""
    if what in selector.atlas.tests:
        return of_test(selector, what)
    document = of_file(selector, what)
    return document if document["known"] else None


def of_test(selector: Known, test: str) -> dict[str, Any]:
    """What the last selection made of it, and what it touches."""
    atlas = selector.atlas
    bit = atlas.of([test])
    because = [finding.because for finding in selector.found if (finding.first | finding.rest) & bit]
    match selector.last:
        case All(because=words):
            because = [words]
        case Only(tests=tests, because=words) if not because and not {test, file_of(test)}.isdisjoint(tests):
            because = [words]
        case _:
            pass
    touched = atlas.touched_by(test)
    functions: dict[str, list[str]] = {}
    for path, name in sorted(atlas.units_touched_by(test)):
        functions.setdefault(path, []).append(name)
    return {
        "kind": "test",
        "test": test,
        "known": True,
        "selected": bool(because),
        "wave": 1 if any(finding.first & bit for finding in selector.found) else 2 if because else None,
        "because": list(dict.fromkeys(because)),
        "functions": functions,
        "files": sorted(map(str, touched["files"])),
        "folders": sorted(map(str, touched["folders"])),
        "imports": sorted(map(str, touched["imports"])),
        "scopes": [_said(str(scope)) for scope in sorted(touched["uses"], key=str)],
        "is_opaque": atlas.is_opaque(test),
    }


def of_file(selector: Known, path: str) -> dict[str, Any]:
    """Its functions with the tests that entered them, and all others that it can reach."""
    atlas = selector.atlas
    functions = {
        name: _listed(atlas.names(atlas.direct("units", (file, name)))) for file, name in sorted(atlas.units_of(path))
    }
    reach = selector.reach([path])
    readers = atlas.direct("files", path)
    return {
        "kind": "file",
        "file": path,
        "known": bool(functions or reach or readers or atlas.in_file(path)),
        "tests_in_it": _listed(atlas.names(atlas.in_file(path))),
        "functions": functions,
        "read_by": _listed(atlas.names(readers)),
        "reached_by": _listed(atlas.names(reach)),
        "of": len(list(atlas.tests)),
    }


def _listed(names: Iterable[str]) -> dict[str, Any]:
    found = sorted(names)
    return {"count": len(found), "tests": found[:MOST]}


def _said(scope: str) -> str:
    """The name of a scope in words."""
    words = {
        **{FIXTURE: "the fixture", FILE: "the collection of", IMPORT: "the import of", MEMO: "what is kept by"},
        **{LIBRARY: "files that may be kept by"},
    }
    for start, word in words.items():
        if scope.startswith(start):
            rest = scope.removeprefix(start)
            return f"{word} {rest.rpartition(':')[2] if start == FIXTURE else rest}"
    return "the whole session" if scope == SESSION else scope
