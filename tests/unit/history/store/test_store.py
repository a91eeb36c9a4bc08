"""What the store writes, the queries read back from real files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from support.history_records import FAILED, PASSED, SNAPSHOT, detail_of

from watchtest.core.model import (
    All,
    Failure,
    Lane,
    Location,
    Only,
    Outcome,
    Result,
    Run,
    RunState,
    Selection,
    Trigger,
)
from watchtest.errors import WorkspaceError
from watchtest.history.queries.run_queries import PastRun, RunDetail, RunFilter, last_full_results, recent_runs
from watchtest.history.store.database_file import open_for_reading
from watchtest.history.store.store import Store


def a_run(number: int = 1, lane: Lane = Lane.SAVE, selection: Selection | None = None) -> Run:
    return Run(f"s.{number}", lane, Trigger.SAVE, selection or All("all tests"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "history.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as opened:
        yield opened


def shown(path: Path, name: str = "last", workspace: str | None = None) -> RunDetail:
    with open_for_reading(path) as connection:
        found = detail_of(connection, name, workspace)
    assert found is not None
    return found


def listed(path: Path, limit: int = 100) -> tuple[PastRun, ...]:
    with open_for_reading(path) as connection:
        return recent_runs(connection, limit=limit)


def test_a_whole_run_is_read_back_as_it_was_told(store: Store, path: Path) -> None:
    store.begin(a_run(), 100.0, "/w", "a.py changed")
    store.start(a_run(), 100.1, "waited: paused")
    store.set_snapshot("s.1", SNAPSHOT, "image:1")
    store.advance("s.1", RunState.RUNNING, 100.2)
    store.add_results("s.1", [PASSED], 100.5)
    store.add_results("s.1", [FAILED], 101.0)
    store.end("s.1", RunState.FAILED, "2 of them", 101.5, "1 failed, 1 passed\n")

    found = shown(path, "s.1")

    assert [(each.state, each.at, each.reason) for each in found.transitions] == [
        (RunState.QUEUED, 100.0, "a.py changed"),
        (RunState.SYNCING, 100.1, "waited: paused"),
        (RunState.RUNNING, 100.2, ""),
        (RunState.FAILED, 101.5, "2 of them"),
    ]
    assert [each.result for each in found.results] == [PASSED, FAILED]
    assert found.raw_output == "1 failed, 1 passed\n"
    run = found.run
    assert (run.lane, run.trigger, run.state) == (Lane.SAVE, Trigger.SAVE, RunState.FAILED)
    assert (run.queued_at, run.ended_at) == (100.0, 101.5)
    assert (run.tree, run.head, run.branch, run.is_dirty, run.environment) == (
        "4b825dc6",
        "c0ffee",
        "main",
        True,
        "image:1",
    )
    assert run.counts == {Outcome.PASSED: 1, Outcome.FAILED: 1}


def test_every_outcome_comes_back_as_itself(store: Store, path: Path) -> None:
    store.begin(a_run(), 1.0, "/w")
    store.add_results("s.1", [Result(f"t.py::{outcome}", outcome, 0.0) for outcome in Outcome], 2.0)

    found = shown(path)

    assert {each.result.test: each.result.outcome for each in found.results} == {f"t.py::{o}": o for o in Outcome}
    assert found.run.counts == dict.fromkeys(Outcome, 1)


def test_results_are_there_for_readers_before_the_run_has_ended(store: Store, path: Path) -> None:
    store.begin(a_run(), 1.0, "/w")
    store.add_results("s.1", [PASSED], 2.0)

    found = shown(path)

    assert found.run.state is RunState.RUNNING
    assert found.run.ended_at is None
    assert [each.result for each in found.results] == [PASSED]


def test_a_test_reported_again_is_its_next_attempt_and_the_last_one_counts(store: Store, path: Path) -> None:
    store.begin(a_run(), 1.0, "/w")
    store.add_results("s.1", [FAILED], 2.0)
    again = Result(FAILED.test, Outcome.PASSED, 0.1)
    store.add_results("s.1", [again], 3.0)

    found = shown(path)

    assert [(each.attempt, each.result) for each in found.results] == [(1, FAILED), (2, again)]
    assert found.run.counts == {Outcome.PASSED: 1}


def test_the_last_run_of_all_tests_tells_the_next_watcher_what_failed_and_what_is_quick(
    store: Store, path: Path
) -> None:
    def ran(number: int, results: list[Result], state: RunState, selection: Selection | None = None) -> None:
        store.begin(a_run(number, selection=selection), 1.0, "/w")
        store.add_results(f"s.{number}", results, 2.0)
        store.end(f"s.{number}", state, "", 3.0, "")

    def known() -> dict[str, tuple[Outcome, float]]:
        with open_for_reading(path) as connection:
            return {test: (one.outcome, one.duration_s) for test, one in last_full_results(connection, "/w").items()}

    assert known() == {}
    ran(1, [PASSED, FAILED], RunState.FAILED)
    ran(2, [FAILED], RunState.FAILED, Only((FAILED.test,), "one"))
    ran(3, [PASSED], RunState.SUPERSEDED)
    assert known() == {PASSED.test: (Outcome.PASSED, 0.25), FAILED.test: (Outcome.FAILED, 0.5)}


def test_a_selection_is_kept_with_its_reason(store: Store, path: Path) -> None:
    store.begin(a_run(1), 1.0, "/w")
    store.begin(a_run(2, selection=Only(("a", "b"), because="2 known to fail")), 2.0, "/w")

    some, every = listed(path)

    assert (every.selected, every.because) == (None, "all tests")
    assert (some.selected, some.because) == (2, "2 known to fail")


def test_what_a_run_selects_is_what_was_decided_when_it_began(store: Store, path: Path) -> None:
    store.begin(a_run(), 1.0, "/w")
    store.start(a_run(selection=Only(("a", "b"), because="2 known to fail")), 2.0)

    (run,) = listed(path)

    assert (run.state, run.selected, run.because) == (RunState.SYNCING, 2, "2 known to fail")


def test_runs_are_listed_newest_first_and_filtered(store: Store, path: Path) -> None:
    for number, lane, state in (
        (1, Lane.SAVE, RunState.PASSED),
        (2, Lane.COMMIT, RunState.FAILED),
        (3, Lane.SAVE, RunState.SUPERSEDED),
    ):
        store.begin(a_run(number, lane), float(number), "/w")
        store.end(f"s.{number}", state, "", number + 0.5, "")

    with open_for_reading(path) as connection:
        assert [run.id for run in recent_runs(connection, limit=2)] == ["s.3", "s.2"]
        assert [run.id for run in recent_runs(connection, RunFilter(lane=Lane.SAVE), limit=9)] == ["s.3", "s.1"]
        ended = RunFilter(states=[RunState.FAILED, RunState.PASSED])
        assert [run.id for run in recent_runs(connection, ended, limit=9)] == ["s.2", "s.1"]
        assert recent_runs(connection, RunFilter("/elsewhere"), limit=9) == ()


def test_last_last_failed_and_last_green_name_runs_of_one_workspace(store: Store, path: Path) -> None:
    ends = (RunState.PASSED, RunState.FAILED, RunState.CANCELLED)
    for number, state in enumerate(ends, start=1):
        store.begin(a_run(number), float(number), "/w")
        store.end(f"s.{number}", state, "", number + 0.5, "")
    store.begin(a_run(4), 4.0, "/other")

    assert shown(path, "last", "/w").run.id == "s.3"
    assert shown(path, "last-failed", "/w").run.id == "s.2"
    assert shown(path, "last-green", "/w").run.id == "s.1"
    assert shown(path, "last").run.id == "s.4"
    with open_for_reading(path) as connection:
        assert detail_of(connection, "last-green", "/other") is None
        assert detail_of(connection, "s.99") is None


def test_a_workspace_is_the_same_through_a_symlink(store: Store, path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    store.begin(a_run(), 1.0, str(tmp_path / "link"))

    assert shown(path, "last", str(tmp_path)).run.id == "s.1"


def test_mending_ends_the_open_runs_of_this_workspace_and_no_others(store: Store, path: Path) -> None:
    store.begin(a_run(1), 1.0, "/w")
    store.begin(a_run(2), 2.0, "/w")
    store.set_snapshot("s.2", SNAPSHOT, "", 2.5)
    store.begin(a_run(3), 3.0, "/w")
    store.end("s.3", RunState.PASSED, "", 3.5, "")
    store.begin(a_run(4), 4.0, "/other")

    assert store.end_dead_runs("/w", 9.0) == 2
    assert store.end_dead_runs("/w", 10.0) == 0

    states = {run.id: (run.state, run.reason, run.ended_at) for run in listed(path)}
    assert states == {
        "s.1": (RunState.BROKEN, "the watcher died", 1.0),
        "s.2": (RunState.BROKEN, "the watcher died", 2.5),
        "s.3": (RunState.PASSED, "", 3.5),
        "s.4": (RunState.QUEUED, "", None),
    }
    assert shown(path, "s.2").transitions[-1].reason == "the watcher died"
    assert shown(path, "s.2").run.duration_s == 0.5, "the time after its watcher died does not count"


def test_a_watcher_and_a_gate_beside_it_mend_only_what_is_their_own(store: Store, path: Path) -> None:
    for name in ("s.1", "a1-gate.1", "a2-probe.7"):
        store.begin(replace(a_run(), id=name), 100.0, "/w")

    def open_runs() -> set[str]:
        return {run.id for run in listed(path) if run.ended_at is None}

    store.end_dead_runs("/w", 200.0)
    assert open_runs() == {"a1-gate.1", "a2-probe.7"}, "they may be alive"
    store.begin(replace(a_run(), id="s.2"), 200.0, "/w")
    store.end_dead_runs("/w", 200.0, is_gate=True)
    assert open_runs() == {"s.2"}
    store.begin(replace(a_run(), id="a3-gate.1"), 300.0, "/w")
    store.end_dead_runs("/w", 300.0 + 2 * 3600)
    assert open_runs() == set(), "that one is long dead"


def test_an_ended_run_is_final(store: Store, path: Path) -> None:
    store.begin(a_run(), 1.0, "/w")
    store.end("s.1", RunState.CANCELLED, "", 2.0, "")

    with pytest.raises(WorkspaceError, match="already ended"):
        store.add_results("s.1", [PASSED], 3.0)
    with pytest.raises(WorkspaceError, match="already ended"):
        store.end("s.1", RunState.PASSED, "", 3.0, "")

    assert shown(path).run.state is RunState.CANCELLED
    assert shown(path).results == ()


def test_an_unknown_run_is_an_error_that_names_it(store: Store) -> None:
    with pytest.raises(WorkspaceError, match=r"run s\.7 is not in the history"):
        store.add_results("s.7", [PASSED], 3.0)


def test_a_withdrawn_run_was_none_unless_it_has_results(store: Store, path: Path) -> None:
    store.begin(a_run(1), 1.0, "/w")
    store.begin(a_run(2), 2.0, "/w")
    store.add_results("s.2", [PASSED], 3.0)

    store.withdraw("s.1")
    with pytest.raises(WorkspaceError, match="has results"):
        store.withdraw("s.2")

    assert [run.id for run in listed(path)] == ["s.2"]


def test_a_batch_that_fails_leaves_nothing_of_itself(store: Store, path: Path) -> None:
    store.begin(a_run(), 1.0, "/w")

    def results() -> Iterator[Result]:
        yield PASSED
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        store.add_results("s.1", results(), 2.0)  # type: ignore[arg-type]

    assert shown(path).results == ()
    assert shown(path).run.state is RunState.QUEUED
    store.add_results("s.1", [PASSED], 3.0)
    assert len(shown(path).results) == 1


def test_whatever_a_box_reports_can_be_kept(store: Store, path: Path) -> None:
    nasty = Result(
        "tests/\udcff.py::test[\x00\x1b]",
        Outcome.ERROR,
        math.nan,
        Failure(
            "K", "\ud800", where=Location("\udc80", 2**70), column=-5, text="x" * 200_000 + "the end", output="\x00"
        ),
    )
    store.begin(a_run(), 1.0, "/w")
    store.add_results("s.1", [nasty, Result("t.py::slow", Outcome.PASSED, math.inf)], 2.0)
    store.end("s.1", RunState.ERROR, "\udcff", 3.0, "y" * 5_000_000 + "last line\udcff")

    found = shown(path)

    slow, kept = (each.result for each in sorted(found.results, key=lambda each: each.result.outcome.is_red))
    assert slow.duration_s > 0
    assert kept.duration_s == 0.0
    assert kept.test == "tests/\\udcff.py::test[\x00\x1b]"
    assert kept.failure is not None
    assert kept.failure.text.endswith("the end")
    assert len(kept.failure.text) < 70_000
    assert "characters before this were dropped" in kept.failure.text
    assert found.raw_output.endswith("last line\\udcff")
    assert path.with_name(path.name + "-wal").stat().st_size < 2_000_000


def test_one_store_may_be_used_by_several_threads(store: Store, path: Path) -> None:
    def write(number: int) -> None:
        store.begin(a_run(number), 1.0, "/w")
        for index in range(20):
            store.add_results(f"s.{number}", [Result(f"t.py::{index}", Outcome.PASSED, 0.0)], 2.0)
        store.end(f"s.{number}", RunState.PASSED, "", 3.0, "")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(8)))

    assert [(run.state, run.counts) for run in listed(path)] == [(RunState.PASSED, {Outcome.PASSED: 20})] * 8


def test_a_closed_store_says_so(path: Path) -> None:
    store = Store(path)
    store.close()
    store.close()

    with pytest.raises(WorkspaceError, match="already closed"):
        store.begin(a_run(), 1.0, "/w")


def test_results_take_few_bytes(store: Store, path: Path) -> None:
    """50 runs of 200 tests with long names: a row may cost an integer or two, but never the name again."""
    names = [f"tests/some/folder/of/the/project/test_module_{i % 20}.py::TestClass::test_name_{i}" for i in range(200)]
    for number in range(50):
        store.begin(a_run(number), 1.0, "/w")
        store.add_results(f"s.{number}", [Result(name, Outcome.PASSED, 0.0123) for name in names], 2.0)
        store.end(f"s.{number}", RunState.PASSED, "", 3.0, "")
    store.close()

    assert path.stat().st_size < 50 * 200 * 30
