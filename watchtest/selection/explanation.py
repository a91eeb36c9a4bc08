"""Explains why a test ran or did not, and which tests depend on a file, as documents for `why`, a key and the API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from watchtest.core.model import All, Only
from watchtest.core.recorded import FILE, FIXTURE, IMPORT, LIBRARY, MEMO, SESSION
from watchtest.core.verdict import file_of

if TYPE_CHECKING:
    from watchtest.selection.selector import Selector

SCOPE_WORDS = {
    FIXTURE: "the fixture",
    FILE: "the collection of",
    IMPORT: "the import of",
    MEMO: "values cached by",
    LIBRARY: "files that may be cached by",
}
MOST = 50
"""At most this many names are listed; all are counted."""


def explain(selector: Selector, what: str) -> dict[str, Any] | None:
    """Explain a test, all tests of a function or class, or a file; None if nothing is known about it."""
    if what in selector.test_map.tests:
        return of_tests(selector, what, [what])
    members = [test for test in selector.test_map.tests if test.startswith((f"{what}[", f"{what}::"))]
    if members and "::" in what:  # a file has an explanation of its own
        return of_tests(selector, what, members)
    document = of_file(selector, what)
    return document if document["known"] else None


def of_tests(selector: Selector, name: str, tests: Sequence[str]) -> dict[str, Any]:
    """Explain why the last selection included these tests or not, and what they depend on."""
    test_map = selector.test_map
    bits = test_map.of(tests)
    because = [impact.because for impact in selector.impacts if (impact.first | impact.rest) & bits]
    match selector.last:
        case All(because=words):
            because = [words]
        case Only(tests=chosen, because=words) if not because:
            is_among = not {*tests, *map(file_of, tests)}.isdisjoint(chosen)
            because = [words] if is_among else []
        case _:
            pass
    touched = test_map.touched_by(tests)
    functions: dict[str, list[str]] = {}
    for path, function in sorted(touched["units"]):
        functions.setdefault(path, []).append(function)
    return {
        "kind": "test",
        "test": name,
        "tests": len(tests),
        "known": True,
        "selected": bool(because),
        "wave": 1 if any(impact.first & bits for impact in selector.impacts) else 2 if because else None,
        "because": list(dict.fromkeys(because)),
        "functions": functions,
        "files": sorted(touched["files"]),
        "folders": sorted(touched["folders"]),
        "imports": sorted(touched["imports"]),
        "scopes": [_scope_phrase(scope) for scope in sorted(touched["uses"])],
        "is_opaque": any(map(test_map.is_opaque, tests)),
    }


def of_file(selector: Selector, path: str) -> dict[str, Any]:
    """Return the functions of a file with the tests that called them, and all tests that can import the file."""
    test_map = selector.test_map
    real = selector.real_path(path)  # what ran or was read is recorded without links
    functions = {
        name: _listed(test_map.names(test_map.direct("units", (file, name))))
        for file, name in sorted(test_map.units_of(real))
    }
    reach = selector.reach([path, real])
    readers = test_map.direct("files", path) | test_map.direct("files", real)
    return {
        "kind": "file",
        "file": path,
        "known": bool(functions or reach or readers or test_map.in_file(path)),
        "tests_in_it": _listed(test_map.names(test_map.in_file(path))),
        "functions": functions,
        "read_by": _listed(test_map.names(readers)),
        "reached_by": _listed(test_map.names(reach)),
        "of": len(list(test_map.tests)),
    }


def _listed(names: Iterable[str]) -> dict[str, Any]:
    found = sorted(names)
    return {"count": len(found), "tests": found[:MOST]}


def _scope_phrase(scope: str) -> str:
    """Return the name of a scope as a phrase."""
    for start, word in SCOPE_WORDS.items():
        if scope.startswith(start):
            rest = scope.removeprefix(start)
            return f"{word} {rest.rpartition(':')[2] if start == FIXTURE else rest}"
    return "the whole session" if scope == SESSION else scope
