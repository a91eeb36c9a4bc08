"""Parses the rows of the recorder and fingerprints of files. They come from the box, so their shapes are checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from watchtest.agent.rows import SCOPE_SETS, RowKind, UntrustedRow
from watchtest.core.recorded import TEST, Dependencies, FileFingerprint, ImportName, RunRecording, Unit
from watchtest.core.text import ID_LIMIT


def parse_fingerprint(row: Any) -> FileFingerprint:
    """Return the fingerprint in a row; if there is none, one with an error."""
    match row:
        case {"shell": str(shell), "units": list(units), "imports": list(imports)}:
            return _fingerprint(shell, units, imports)
        case {"error": str(error)}:
            return FileFingerprint(error=error[:ID_LIMIT])
        case _:
            return FileFingerprint(error="has no fingerprint: the box returned none")


def _fingerprint(shell: str, units: list[Any], imports: list[Any]) -> FileFingerprint:
    functions: dict[str, str] = {}
    places: dict[tuple[int, str], tuple[str, ...]] = {}
    writers = set()
    for unit in units:
        match unit:
            case [str(name), int(line), str(bare), str(digest), bool(writes)]:
                there = places.get((line, bare), ())
                places[line, bare] = (*there, name) if digest else there
                if digest:
                    functions[name] = digest
                if writes:
                    writers.add(name)
            case _:
                return FileFingerprint(error="has no fingerprint: the box returned an invalid one")
    return FileFingerprint(shell, functions, places, frozenset(writers), tuple(_imports(imports)))


def _imports(rows: list[Any]) -> Iterable[ImportName]:
    for row in rows:
        match row:
            case [int(level), str(module), None]:
                yield ImportName(level, module)
            case [int(level), str(module), list(names)]:
                yield ImportName(level, module, tuple(name for name in names if isinstance(name, str)))


class RecordingRows:
    """Gathers the rows of one run; `recorded` turns them into a recording at the end."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._codes: dict[int, tuple[str, int, str]] = {}
        self._scopes: dict[str, dict[str, set[Any]]] = {}
        self._modules: dict[str, str] = {}
        self._tops: set[str] = set()
        self._ended: set[str] = set()
        """Tests that finished. The recorded dependencies of an interrupted test are incomplete."""

    def take(self, rows: list[UntrustedRow]) -> None:
        for row in rows:
            match row:
                case {"k": RowKind.CODES, "from": int(first), "codes": list(codes)}:
                    for number, code in enumerate(codes, first):
                        match code:
                            case [str(path), int(line), str(name)]:
                                self._codes[number] = (path, line, name)
                case {"k": RowKind.TEST, "test": str(test)}:
                    self._ended.add(test[:ID_LIMIT])
                case {"k": RowKind.SCOPE, "scope": str(key)}:
                    self._add(key[:ID_LIMIT], row)
                case {"k": RowKind.PROJECT_MODULES, "modules": dict(modules), "tops": list(tops)}:
                    self._modules |= {name: path for name, path in modules.items() if isinstance(path, str)}
                    self._tops.update(top for top in tops if isinstance(top, str))
                case {"k": RowKind.RESTART}:
                    self._begin()

    def _add(self, key: str, row: Mapping[str, Any]) -> None:
        scope = self._scopes.setdefault(key, {"codes": set(), **{name: set() for name in SCOPE_SETS}})
        codes = row.get("codes")
        scope["codes"].update(code for code in codes if isinstance(code, int)) if isinstance(codes, list) else None
        for name in SCOPE_SETS:
            words = row.get(name, ())
            if isinstance(words, list):
                scope[name].update(word[:ID_LIMIT] for word in words if isinstance(word, str))

    def __bool__(self) -> bool:
        return bool(self._scopes)

    def recorded(self, fingerprints: Mapping[str, FileFingerprint]) -> RunRecording:
        """Return the recording; `fingerprints` are those of the Python files as they were in this run."""
        meanings = {number: _meaning(place, fingerprints) for number, place in self._codes.items()}
        tests, scopes = {}, {}
        for key, scope in self._scopes.items():
            test = key.removeprefix(TEST)
            if test == key:
                scopes[key] = _touched(scope, meanings)
            elif test in self._ended:
                tests[test] = _touched(scope, meanings)
        return RunRecording(tests, scopes, dict(self._modules), frozenset(self._tops))


Meaning = tuple[tuple[Unit, ...], str]
"""The functions at a code location; or the file, if the functions are unknown."""


def _meaning(place: tuple[str, int, str], fingerprints: Mapping[str, FileFingerprint]) -> Meaning:
    path, line, name = place
    known = fingerprints.get(path)
    names = known.places.get((line, name)) if known is not None and not known.error else None
    if names is None:
        return (), path
    return tuple((path, name) for name in names), ""


def _touched(scope: Mapping[str, set[Any]], meanings: Mapping[int, Meaning]) -> Dependencies:
    known = [meanings[code] for code in scope["codes"] if code in meanings]
    units = frozenset(unit for units, _ in known for unit in units)
    files = frozenset(file for _, file in known if file)
    rest = {name: frozenset(scope[name]) for name in SCOPE_SETS if name != "files"}
    return Dependencies(units=units, files=files | scope["files"], **rest)
