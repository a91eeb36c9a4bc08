"""A watcher that runs for weeks: the old contents it keeps are bounded, and what it needs is always there."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from watchtest.core.model import Entry, EntryKind, Only, Snapshot
from watchtest.core.recorded import Dependencies, FileFingerprint, RunRecording
from watchtest.selection.selector import SPARE_FINGERPRINTS, SelectionInput, Selector

TEST = "tests/test_a.py::test_a"
SAVES = 4 * SPARE_FINGERPRINTS


def tree(number: int) -> Snapshot:
    files = {"shop.py": f"shop {number}", "other.py": "other"}
    return Snapshot(f"t{number}", {path: Entry(EntryKind.FILE, 0o644, 3, digest) for path, digest in files.items()})


def test_prints_of_contents_that_are_no_more_are_forgotten_and_those_in_use_are_not() -> None:
    asked: list[str] = []

    async def fetch(paths: Collection[str]) -> dict[str, FileFingerprint]:
        asked.extend(paths)
        return {path: FileFingerprint("s", {"f": f"{path} {len(asked)}"}, {(1, "f"): ("f",)}) for path in paths}

    async def save_again_and_again() -> None:
        selector = Selector()
        touched = Dependencies(units=frozenset({("shop.py", "f")}))
        selector.test_map.learn(RunRecording({TEST: touched}, {}, {}), is_proven=True)
        selector._environment = "env"
        first = SelectionInput(tree(0), "env", None, frozenset({TEST}), frozenset(), fetch)
        selector.begin(first)
        await selector.settle(None)
        for number in range(1, SAVES):
            inputs = SelectionInput(tree(number), "env", tree(number - 1), frozenset({TEST}), frozenset(), fetch)
            selection = await selector.select(inputs)
            assert isinstance(selection, Only) or "f changed" in selection.because
            assert "shop.py: f changed" in selection.because, "both contents were there to be compared"
            assert len(selector._fingerprints) <= SPARE_FINGERPRINTS + 4

    asyncio.run(save_again_and_again())
    assert asked.count("other.py") == 1, "what is still in use is not asked for again"
    assert asked.count("shop.py") == SAVES
