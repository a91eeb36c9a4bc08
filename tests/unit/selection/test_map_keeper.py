"""What a watcher stores for the next one must never lead to a false green."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from support.watcher_states import failed, passed

from watchtest.core.model import Entry, EntryKind, Lane, Policy, Result, Snapshot, Verdict
from watchtest.core.recorded import Dependencies, FileFingerprint, ImportName, RunRecording
from watchtest.core.state import Idle, Knowledge, KnownTest, LaneState, State
from watchtest.selection.map_file import SavedMap, load, save
from watchtest.selection.map_keeper import MapKeeper, map_file
from watchtest.selection.selector import Selector

A, B = "tests/test_a.py::test_a", "tests/test_a.py::test_b"
TREE = Snapshot("t1", {"shop.py": Entry(EntryKind.FILE, 0o644, 3, "d1")})
PRINT = FileFingerprint("s", {"f": "x"}, {(1, "f"): ("f",)}, frozenset({"f"}), (ImportName(1, "a", ("b",)),))


def selector_with(*tests: str) -> Selector:
    selector = Selector()
    touched = Dependencies(
        units=frozenset({("shop.py", "f")}), files=frozenset({"data.txt"}), uses=frozenset({"memo:x"})
    )
    shared = {"memo:1:f:shop.py": Dependencies(opaque=frozenset({"starts git"}), imports=frozenset({"shop.py"}))}
    selector.test_map.learn(RunRecording(dict.fromkeys(tests, touched), shared, {"shop": "shop.py"}), is_proven=True)
    return selector


def lane_of(*results: Result, at: float) -> State:
    red = any(result.outcome.is_red for result in results)
    knowledge = Knowledge(
        verdict=Verdict.FAILED if red else Verdict.PASSED,
        at=at,
        snapshot=TREE,
        tests={result.test: KnownTest(result, TREE.id, "s.1") for result in results},
        is_complete=True,
        box="box",
        base=TREE,
    )
    return State({Lane.SAVE: LaneState(Lane.SAVE, Policy.AFFECTED, "s", activity=Idle(), knowledge=knowledge)})


def test_a_map_is_restored_as_it_was_stored_with_scopes_whose_contents_are_unknown(tmp_path: Path) -> None:
    test_map = selector_with(A, B).test_map
    file = tmp_path / "maps" / "save.map"
    save(file, SavedMap("env", "box", TREE, {A: passed(A), B: failed(B)}, test_map, {"d1": PRINT}))
    kept = load(file)
    assert kept is not None
    assert (kept.environment, kept.box, kept.base, dict(kept.fingerprints)) == ("env", "box", TREE, {"d1": PRINT})
    assert {test: result.outcome for test, result in kept.results.items()} == {
        A: passed(A).outcome,
        B: failed(B).outcome,
    }
    assert kept.test_map.touched_by([A]) == test_map.touched_by([A])
    assert list(kept.test_map.opaque_scopes()) == list(test_map.opaque_scopes()) == ["memo:1:f:shop.py"]
    assert not list(file.parent.glob("*.map.*"))


def test_a_damaged_map_is_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "save.map").write_bytes(b"no such thing")
    assert load(tmp_path / "save.map") is None
    assert MapKeeper(tmp_path, {Lane.SAVE: Selector()}).resume(Lane.SAVE, {}) == Knowledge()


def test_red_that_came_later_on_the_same_tree_is_kept_too(tmp_path: Path) -> None:
    async def leave_twice() -> None:
        keeper = MapKeeper(tmp_path, {Lane.SAVE: selector_with(A, B)})
        await keeper.close(lane_of(passed(A), passed(B), at=1.0))
        await keeper.close(lane_of(passed(A), failed(B), at=2.0))  # an audit, or a flaky test that was run again

    asyncio.run(leave_twice())
    knowledge = MapKeeper(tmp_path, {Lane.SAVE: Selector()}).resume(Lane.SAVE, {})
    assert knowledge.base == TREE
    assert knowledge.must_run == {B}
    assert knowledge.verdict is Verdict.UNKNOWN


def test_red_that_only_the_history_has_seen_is_not_forgotten(tmp_path: Path) -> None:
    asyncio.run(MapKeeper(tmp_path, {Lane.SAVE: selector_with(A)}).close(lane_of(passed(A), passed(B), at=1.0)))
    knowledge = MapKeeper(tmp_path, {Lane.SAVE: Selector()}).resume(Lane.SAVE, {A: failed(A), "gone::x": failed("x")})
    assert knowledge.must_run == {A}


def test_what_is_not_whole_is_not_kept(tmp_path: Path) -> None:
    state = lane_of(passed(A), at=1.0)
    lane = state.lanes[Lane.SAVE]
    partial = replace(lane, knowledge=replace(lane.knowledge, is_complete=False))
    keeper = MapKeeper(tmp_path, {Lane.SAVE: selector_with(A)})
    asyncio.run(keeper.close(replace(state, lanes={Lane.SAVE: partial})))
    assert not map_file(tmp_path, Lane.SAVE).exists()
