"""A watcher that runs for weeks keeps few old contents; and what a move of HEAD affects."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

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


def repository(**digests: str) -> Mapping[str, Entry]:
    names = {"head": ".git/refs/heads/main", "index": ".git/index", "pack": ".git/objects/pack/pack-1.pack"}
    return {names[name]: Entry(EntryKind.FILE, 0o644, 3, digest) for name, digest in digests.items()}


@pytest.mark.parametrize(
    ("after", "affected"),
    [
        (repository(head="1", index="1", pack="1"), ()),
        (repository(head="1", index="1", pack="2"), ()),
        (repository(head="1", index="2", pack="1"), ("test_runs_git",)),
        (repository(head="2", index="1", pack="2"), ("test_reads_git", "test_runs_git")),
    ],
)
def test_a_commit_affects_tests_that_ask_git_and_no_others(after: Mapping[str, Entry], affected: tuple[str]) -> None:
    async def fetch(_paths: Collection[str]) -> dict[str, FileFingerprint]:
        return {}

    selector = Selector()
    tests = {
        "t.py::test_reads_git": Dependencies(files=frozenset({".git"})),
        "t.py::test_runs_git": Dependencies(opaque=frozenset({"starts git"})),
        "t.py::test_other": Dependencies(units=frozenset({("shop.py", "f")})),
    }
    selector.test_map.learn(RunRecording(tests, {}, {}), is_proven=True)
    selector._environment = "env"
    before = replace(tree(0), repository=repository(head="1", index="1", pack="1"))
    inputs = SelectionInput(replace(before, repository=after), "env", before, frozenset(tests), frozenset(), fetch)
    selection = asyncio.run(selector.select(inputs))
    assert isinstance(selection, Only)
    assert selection.tests == tuple(f"t.py::{name}" for name in affected)
