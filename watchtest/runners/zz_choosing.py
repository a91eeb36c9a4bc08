"""Which runners test a snapshot: those of the settings, else those that its files ask for. Keeps its last answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from watchtest.core.model import Entry, Kind, Snapshot
from watchtest.execution import AnyRunner
from watchtest.runners.detect import MANIFESTS, PYTHON_SETTINGS, PYTHON_TABLES, detect
from watchtest.runners.runner import RunnerWish

RANK = MappingProxyType({"command": 0, "pytest": 1, "unittest": 1, "vitest": 2, "jest": 2, "cargo": 3, "go": 4})
"""Ids of tests are most special to the first and least to the last: so they are asked whose a test is."""
DECISIVE = frozenset({*MANIFESTS, *(name.rpartition("/")[2] for name in PYTHON_SETTINGS), *PYTHON_TABLES})


class Choosing:
    """`given`: the runners of the settings; none means that they are looked for. `make` turns a wish into a runner.

    `is_for_pytest`: other settings are meant for pytest, so that is used even where unittest would do.
    """

    def __init__(
        self,
        given: tuple[RunnerWish, ...],
        read: Callable[[str, Entry], bytes],
        make: Callable[[RunnerWish], AnyRunner],
        is_for_pytest: bool = False,
    ) -> None:
        self._is_for_pytest = is_for_pytest
        self._given = given
        self._read = read
        self._make = make
        self._entries: Mapping[str, Entry] = MappingProxyType({})
        self._wishes: tuple[RunnerWish, ...] = ()

    def __call__(self, snapshot: Snapshot) -> tuple[AnyRunner, ...]:
        return tuple(map(self._make, self.wishes(snapshot)))

    def wishes(self, snapshot: Snapshot) -> tuple[RunnerWish, ...]:
        wishes = self._given or self._found(snapshot.entries)
        return tuple(sorted(wishes, key=lambda wish: RANK[wish.kind]))

    def _found(self, entries: Mapping[str, Entry]) -> tuple[RunnerWish, ...]:
        if not self._wishes or not self._is_as_before(entries):
            files = {path: entry for path, entry in entries.items() if entry.kind is Kind.FILE}
            found = detect(files, lambda path: self._read(path, files[path]))
            self._wishes = tuple(
                replace(wish, kind="pytest") if wish.kind == "unittest" and self._is_for_pytest else wish
                for wish in found
            )
        self._entries = entries
        return self._wishes

    def _is_as_before(self, entries: Mapping[str, Entry]) -> bool:
        """Looking costs time at every save; whether only unittest is used hangs on what the tests say."""
        if any(wish.kind == "unittest" for wish in self._wishes) or entries.keys() != self._entries.keys():
            return False
        changed = (path for path, entry in entries.items() if self._entries[path] is not entry)
        return not any(path.rpartition("/")[2] in DECISIVE for path in changed)
