"""The recorded dependencies of all tests, indexed so that "which tests depend on this?" is fast for thousands of tests.

A set of tests is an integer with one bit per test. The map is used from one thread at a time.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

from watchtest.core.recorded import FILE, IMPORT, LIBRARY, MEMO, SESSION, Dependencies, RunRecording, Unit
from watchtest.core.verdict import file_of
from watchtest.selection.import_graph import ImportGraph, ModuleNames

KINDS = ("units", "files", "folders", "probes", "imports", "missing", "uses")


class TestMap:
    def __init__(self) -> None:
        self._bits: dict[str, int] = {}
        self._tests: list[str] = []
        self._things: dict[tuple[str, object], int] = {}
        """A number for each dependency, for example ("units", ("a.py", "f")) or ("files", "data.txt")."""
        self._names: list[tuple[str, object]] = []
        self._touched: dict[str, array[int]] = {}
        """By test: the numbers of its dependencies."""
        self._masks: dict[int, int] = {}
        """By number: the tests that depend on it directly."""
        self._owners: dict[tuple[str, object], set[str]] = {}
        """By dependency: the shared scopes that depend on it directly."""
        self._scopes: dict[str, Dependencies] = {}
        self._units: dict[str, set[Unit]] = {}
        self._opaque = 0
        self._by_file: dict[str, int] = {}
        self.modules: dict[str, str] = {}
        self.tops: frozenset[str] = frozenset()

    # -- learning ----------------------------------------------------------------------------------

    @property
    def tests(self) -> Iterable[str]:
        return self._bits.keys()

    def __len__(self) -> int:
        return len(self._bits)

    def learn(self, recorded: RunRecording, is_proven: bool) -> None:
        """Learn what a run recorded. Unless it is proven, earlier dependencies are kept as well."""
        fresh: dict[int, list[int]] = {}
        for test, touched in recorded.tests.items():
            bit = self._bit(test)
            numbers = self._numbers(touched)
            before = set(self._touched.get(test, ()))
            if not is_proven:
                numbers |= before
            for number in before - numbers:
                self._masks[number] &= ~(1 << bit)
            for number in numbers - before:
                fresh.setdefault(number, []).append(bit)
            self._touched[test] = array("I", sorted(numbers))
            is_opaque = bool(touched.opaque) or (not is_proven and self._opaque >> bit & 1)
            self._opaque = self._opaque | 1 << bit if is_opaque else self._opaque & ~(1 << bit)
        for number, bits in fresh.items():
            self._masks[number] = self._masks.get(number, 0) | _mask(bits)
        for key, touched in recorded.scopes.items():
            # Never replaced: only the first test that uses a scope records what happens in it.
            self._share(key, touched | self._scopes.get(key, Dependencies()))
        self.modules.update(recorded.modules)
        self.tops |= recorded.tops

    def forget(self, gone: Iterable[str]) -> None:
        """Remove tests that no longer exist."""
        for test in gone:
            bit = self._bits.pop(test, None)
            if bit is None:
                continue
            for number in self._touched.pop(test, ()):
                self._masks[number] &= ~(1 << bit)
            self._by_file[file_of(test)] &= ~(1 << bit)
            self._opaque &= ~(1 << bit)
            self._tests[bit] = ""

    def _bit(self, test: str) -> int:
        bit = self._bits.get(test)
        if bit is None:
            bit = self._bits[test] = len(self._tests)
            self._tests.append(test)
            file = file_of(test)
            self._by_file[file] = self._by_file.get(file, 0) | 1 << bit
        return bit

    def _numbers(self, touched: Dependencies) -> set[int]:
        return {self._number(kind, thing) for kind in KINDS for thing in getattr(touched, kind)}

    def _number(self, kind: str, thing: object) -> int:
        number = self._things.get((kind, thing))
        if number is None:
            number = self._things[kind, thing] = len(self._names)
            self._names.append((kind, thing))
            if kind == "units":
                self._know_unit(thing)  # type: ignore[arg-type]
        return number

    def _know_unit(self, unit: Unit) -> None:
        self._units.setdefault(unit[0], set()).add(unit)

    def _share(self, key: str, touched: Dependencies) -> None:
        self._scopes[key] = touched
        for kind in KINDS:
            for thing in getattr(touched, kind):
                self._owners.setdefault((kind, thing), set()).add(key)
                if kind == "units":
                    self._know_unit(thing)

    # -- answering ---------------------------------------------------------------------------------

    def all(self) -> int:
        return _mask(self._bits.values())

    def names(self, mask: int) -> Iterator[str]:
        """Yield the tests of a set, in the order in which they became known."""
        for index, byte in enumerate(mask.to_bytes((mask.bit_length() + 7) // 8, "little")):
            for bit in range(8) if byte else ():
                if byte >> bit & 1:
                    yield self._tests[index * 8 + bit]

    def of(self, tests: Iterable[str]) -> int:
        return _mask(self._bits[test] for test in tests if test in self._bits)

    def opaque(self) -> int:
        """Return the tests whose dependencies are incomplete, directly or through a scope that they use."""
        return self._opaque | _union(self.users(key) for key in self.opaque_scopes() if key != SESSION)

    def opaque_scopes(self) -> Iterable[str]:
        return [key for key, touched in self._scopes.items() if touched.opaque]

    def is_collected(self, path: str) -> bool:
        """Return whether the runner collected tests from the file, even if it found none."""
        return f"{FILE}{path}" in self._scopes

    def in_file(self, path: str) -> int:
        return self._by_file.get(path, 0)

    def below(self, folder: str) -> int:
        """Return the tests in this folder and its subfolders."""
        if not folder:
            return self.all()
        return _union(mask for file, mask in self._by_file.items() if file.startswith(f"{folder}/"))

    def direct(self, kind: str, thing: object) -> int:
        """Return the tests that depend on a thing directly, or through a scope that they use."""
        mask = self._masks.get(self._things.get((kind, thing), -1), 0)
        keys = (key for key in self.scopes(kind, thing) if key != SESSION and not key.startswith(LIBRARY))
        return mask | _union(map(self.users, keys))

    def scopes(self, kind: str, thing: object) -> Iterable[str]:
        """Return the scopes that depend on a thing directly."""
        return self._owners.get((kind, thing), ())

    def users(self, key: str) -> int:
        """Return the tests that use a scope, directly or through other scopes."""
        found = {key}
        waiting = [key]
        mask = 0
        while waiting:
            current = waiting.pop()
            mask |= self._masks.get(self._things.get(("uses", current), -1), 0)
            if current.startswith(FILE):
                mask |= self.in_file(current.removeprefix(FILE))
            for owner in self._owners.get(("uses", current), ()):
                if owner not in found:
                    found.add(owner)
                    waiting.append(owner)
        return mask

    def units_of(self, path: str) -> Iterable[Unit]:
        return self._units.get(path, ())

    def entering(self, path: str) -> int:
        """Return the tests that are in a file or ran code of it."""
        units = _union(self.direct("units", unit) for unit in self.units_of(path))
        return self.in_file(path) | units | self.direct("imports", path) | self.users(f"{IMPORT}{path}")

    def looked_for(self, names: Iterable[str]) -> int:
        """Return the tests that looked up one of these modules by name."""
        return _union(self.direct("missing", name) for name in names)

    def touched_by(self, tests: Iterable[str]) -> dict[str, set[Any]]:
        """Return the direct dependencies of these tests by kind."""
        found: dict[str, set[Any]] = {kind: set() for kind in KINDS}
        for number in {number for test in tests for number in self._touched.get(test, ())}:
            kind, thing = self._names[number]
            found[kind].add(thing)
        return found

    @property
    def things(self) -> list[tuple[str, object]]:
        """All dependencies, indexed by the numbers of `numbers_of`."""
        return self._names

    def numbers_of(self, test: str) -> list[int]:
        return list(self._touched.get(test, ()))

    def is_opaque(self, test: str) -> bool:
        return bool(self._opaque >> self._bits[test] & 1)

    @property
    def scope_keys(self) -> Iterable[str]:
        return self._scopes.keys()

    def scope(self, key: str) -> Dependencies:
        return self._scopes.get(key, Dependencies())

    # -- imports -----------------------------------------------------------------------------------

    @property
    def files(self) -> Iterable[str]:
        """The files that contain tests."""
        return self._by_file.keys()

    def add_edges(self, graph: ImportGraph, names: ModuleNames) -> None:
        """Add imports to the graph that runs have observed but no statement shows."""
        for key, touched in self._scopes.items():
            importer = _file_of_scope(key)
            if importer:
                for imported in touched.imports:
                    graph.add_edge(importer, imported)
                for name in touched.missing:
                    for imported in names.files(name):
                        graph.add_edge(importer, imported)


def _file_of_scope(key: str) -> str:
    for start in (IMPORT, FILE):
        if key.startswith(start):
            return key.removeprefix(start)
    return key.rpartition(":")[2] if key.startswith(MEMO) else ""


def _mask(bits: Iterable[int]) -> int:
    positions = list(bits)
    if not positions:
        return 0
    data = bytearray(max(positions) // 8 + 1)
    for position in positions:
        data[position >> 3] |= 1 << (position & 7)
    return int.from_bytes(data, "little")


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found
