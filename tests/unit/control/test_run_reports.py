"""Runs that only the history remembers, as the API reports them: a real history file behind a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.control_server import bench, short_folder
from support.history_records import FAILED, PASSED, SNAPSHOT

from watchtest.control.api.request_models import RunsQuery
from watchtest.control.run_reports import PastRuns
from watchtest.core.model import All, Lane, Only, Policy, Run, RunState, Trigger
from watchtest.errors import ControlError
from watchtest.history.store.store import Store

WORKSPACE = Path("/work")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A history with five runs, the last one in progress, and one run of another workspace."""
    file = tmp_path / "history.sqlite3"
    with Store(file) as store:
        for number in range(1, 6):
            lane = Lane.COMMIT if number % 2 else Lane.SAVE
            selection = Only(("a", "b"), "two of them") if number == 2 else All("all of them")
            run = Run(f"s.{number}", lane, Trigger.SAVE, selection)
            store.begin(run, float(number), str(WORKSPACE))
            store.start(run, number + 0.1)
            store.set_snapshot(run.id, SNAPSHOT, "python")
            store.add_results(run.id, [PASSED, FAILED], number + 0.2)
            if number < 5:
                store.end(run.id, RunState.FAILED if number > 2 else RunState.PASSED, "red", number + 0.5, "")
        store.begin(Run("other.1", Lane.SAVE, Trigger.SAVE, All("all")), 9.0, "/elsewhere")
    return file


def spoil(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()
    path.write_bytes(b"no database at all" * 1000)


def ids(past: PastRuns, query: RunsQuery, before: tuple[float, str] | None = None, limit: int = 10) -> list[str]:
    return [run.id for run in past.runs(query, before, limit)]


def test_runs_are_listed_newest_first_by_lane_state_and_age(path: Path) -> None:
    past = PastRuns(path, WORKSPACE)
    assert ids(past, RunsQuery()) == ["s.5", "s.4", "s.3", "s.2", "s.1"]
    assert ids(past, RunsQuery(), limit=2) == ["s.5", "s.4"]
    assert ids(past, RunsQuery(), before=(3.0, "s.3")) == ["s.2", "s.1"]
    assert ids(past, RunsQuery(), before=(3.0, "s.4")) == ["s.3", "s.2", "s.1"]
    assert ids(past, RunsQuery(lane=Lane.COMMIT)) == ["s.5", "s.3", "s.1"]
    assert ids(past, RunsQuery(state=RunState.FAILED, lane=Lane.SAVE)) == ["s.4"]


def test_a_run_and_its_results_are_told_whole(path: Path) -> None:
    past = PastRuns(path, WORKSPACE)
    run = past.run("s.2")
    assert run is not None
    assert (run.state, run.reason, run.selected, run.because) == (RunState.PASSED, "red", 2, "two of them")
    assert (run.queued_at, run.ended_at, run.tree, run.total) == (2.0, 2.5, SNAPSHOT.id, 2)
    assert list(past.results("s.2")) == [PASSED, FAILED]
    under_way = past.run("s.5")
    assert under_way is not None
    assert (under_way.has_ended, under_way.total) == (False, None)


def test_without_a_history_there_was_nothing(tmp_path: Path) -> None:
    past = PastRuns(tmp_path / "none.sqlite3", WORKSPACE)
    assert (past.run("s.1"), past.runs(RunsQuery(), None, 5), past.results("s.1")) == (None, (), ())
    assert list(tmp_path.iterdir()) == []


def test_they_are_served_and_a_damaged_history_is_said_and_ends_nothing(path: Path) -> None:
    async def whole() -> None:
        with short_folder() as folder:
            async with bench(folder, policy=Policy.OFF, past=PastRuns(path, WORKSPACE)) as watcher:
                answer = await watcher.get("/runs?limit=2")
                assert ([run["id"] for run in answer["runs"]], answer["next"]) == (["s.5", "s.4"], "s.4")
                answer = await watcher.get("/runs?before=s.4&limit=9")
                assert [run["id"] for run in answer["runs"]] == ["s.3", "s.2", "s.1"]
                results = await watcher.get("/runs/s.3/results")
                assert [each["outcome"] for each in results["results"]] == ["passed", "failed"]
                assert results["results"][1]["failure"]["line"] == 12
                spoil(path)
                with pytest.raises(ControlError, match="damaged"):
                    await watcher.get("/runs")
                assert (await watcher.get("/health"))["status"] == "ok"

    asyncio.run(whole())
