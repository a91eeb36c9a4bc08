"""Lists of runs and results in progress: nothing twice, nothing lost; the history provides what memory has dropped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.control_server import TEST, Bench, FakeHistory, bench, old, play, short_folder
from support.watcher_states import Story, failed, passed

from watchtest.client.watcher import RequestRefused
from watchtest.control.result_log import HISTORY_OFFSET, ResultLogs, page_of
from watchtest.control.run_reports import RunReport, RunReports
from watchtest.core.events import RunEnded, Unchanged
from watchtest.core.model import Lane, Outcome, Policy, Result, RunState, Trigger
from watchtest.core.state import Executing, Working
from watchtest.core.transitions import NOTHING_NEW, facts_of


def ids(answer: dict[str, Any]) -> list[str]:
    return [run["id"] for run in answer["runs"]]


def counted(watcher: Bench) -> int:
    working = watcher.loop.state.top.activity
    return len(working.phase.results) if isinstance(working, Working) and isinstance(working.phase, Executing) else 0


# -- lists -----------------------------------------------------------------------------------------


def test_runs_that_wait_run_and_ended_are_listed_newest_first() -> None:
    async def story(watcher: Bench) -> None:
        watcher.runs.outcomes.put_nowait(Outcome.FAILED)
        ended = (await watcher.post("/runs", {"tests": [TEST]}))["id"]
        await watcher.end_of(ended)
        running = (await watcher.post("/runs", {"policy": "all"}))["id"]
        waiting = (await watcher.post("/runs", {"tests": [TEST]}))["id"]
        answer = await watcher.get("/runs")
        assert ids(answer) == [waiting, running, ended]
        assert [run["state"] for run in answer["runs"]][0::2] == ["queued", "failed"]
        assert answer["next"] is None
        assert answer["runs"][2]["selected"] == 1
        assert answer["runs"][1]["because"] == "all tests were requested"
        assert ids(await watcher.get("/runs?state=failed")) == [ended]
        assert ids(await watcher.get("/runs?state=queued&lane=save")) == [waiting]
        assert ids(await watcher.get("/runs?lane=commit")) == []
        await watcher.post(f"/runs/{waiting}/cancel")
        await watcher.post(f"/runs/{running}/kill")

    play(story, policy=Policy.OFF)


def test_older_runs_come_from_the_history_page_by_page_and_none_twice() -> None:
    past = FakeHistory([old(number, Lane.COMMIT if number % 2 else Lane.SAVE) for number in range(1, 8)])

    async def whole() -> None:
        with short_folder() as folder:
            async with bench(folder, policy=Policy.OFF, past=past) as watcher:
                watcher.runs.outcomes.put_nowait(Outcome.PASSED)
                fresh = (await watcher.post("/runs"))["id"]
                await watcher.end_of(fresh)
                found, query = list[str](), "/runs?limit=3"
                while True:
                    answer = await watcher.get(query)
                    found += ids(answer)
                    if answer["next"] is None:
                        break
                    query = f"/runs?limit=3&before={answer['next']}"
                assert found == [fresh, *(f"old.{number}" for number in range(7, 0, -1))]
                assert ids(await watcher.get("/runs?lane=commit&limit=2")) == ["old.7", "old.5"]

    asyncio.run(whole())


def test_what_is_remembered_outweighs_what_was_written_down_before() -> None:
    async def whole() -> None:
        past = FakeHistory()
        with short_folder() as folder:
            async with bench(folder, policy=Policy.OFF, past=past) as watcher:
                watcher.runs.outcomes.put_nowait(Outcome.PASSED)
                run = (await watcher.post("/runs"))["id"]
                await watcher.end_of(run)
                past.kept = [RunReport(run, Lane.SAVE, Trigger.MANUAL, RunState.RUNNING, queued_at=1.0)]
                answer = await watcher.get("/runs")
                assert [(each["id"], each["state"]) for each in answer["runs"]] == [(run, "passed")]

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ("limit=0", "bad_request", "greater than or equal to 1"),
        ("limit=201", "bad_request", "less than or equal to 200"),
        ("limit=-1", "bad_request", "not a whole number"),
        ("limit=1e2", "bad_request", "not a whole number"),
        ("limit=%D9%A3", "bad_request", "not a whole number"),
        ("limit=", "bad_request", "not a whole number"),
        ("limit=1&limit=2", "bad_request", "given twice"),
        ("lane=stag", "bad_request", "no such lane"),
        ("state=red", "bad_request", "no such state"),
        ("order=up", "bad_request", "unknown parameter 'order'"),
        ("before=..%2F", "bad_request", "not a run id"),
        ("before=none.1", "no_such_run", "no run none.1"),
    ],
)
def test_a_list_that_cannot_be_had_is_refused(query: str, code: str, words: str) -> None:
    async def story(watcher: Bench) -> None:
        with pytest.raises(RequestRefused, match=words) as refused:
            await watcher.get(f"/runs?{query}")
        assert refused.value.reason == code

    play(story, policy=Policy.OFF)


def test_a_run_that_had_to_wait_keeps_the_time_at_which_it_was_asked_for() -> None:
    async def story(watcher: Bench) -> None:
        first, second = [await watcher.post("/runs", {"tests": [name]}) for name in ("test_a.py", "test_b.py")]
        for _ in range(2):
            watcher.runs.outcomes.put_nowait(Outcome.PASSED)
        end = await watcher.end_of(second["id"])
        assert end["queued_at"] == second["queued_at"]
        assert end["ended_at"] >= (await watcher.end_of(first["id"]))["ended_at"]

    play(story, policy=Policy.OFF)


def test_a_run_that_had_nothing_to_do_has_an_end_but_is_in_no_list() -> None:
    story = Story().change("code.py").sync("tree1")
    working = story.working
    reports = RunReports()
    story.on(RunEnded(Lane.SAVE, 2.0, working.run.id, Unchanged(working.snapshot)))  # type: ignore[arg-type]
    (report,) = reports.follow(tuple(facts_of(*story.steps[-1])), story.state, 2.0)
    assert (report.state, report.reason, report.has_ended) == (RunState.CANCELLED, NOTHING_NEW, True)
    assert reports.find(story.state, working.run.id) == report
    assert reports.all(story.state) == ()


# -- results ---------------------------------------------------------------------------------------


def test_partial_results_come_while_it_runs_each_of_them_once_and_then_the_end() -> None:
    async def story(watcher: Bench) -> None:
        run = (await watcher.post("/runs"))["id"]
        empty = await watcher.get(f"/runs/{run}/results")
        assert (empty["results"], empty["next"], empty["ended"]) == ([], 0, False)
        watcher.runs.outcomes.put_nowait((failed("test_a.py::test_red", output="printed\x1b[31m"), passed("test_b")))
        await watcher.until("they are there", lambda: counted(watcher) == 2)
        first = await watcher.get("/runs/current/results?limit=1")
        assert (first["run"], first["state"], first["ended"], first["more"]) == (run, "running", False, True)
        (red,) = first["results"]
        assert (red["number"], red["test"], red["outcome"], red["duration_s"]) == (
            1,
            "test_a.py::test_red",
            "failed",
            0.2,
        )
        failure = red["failure"]
        assert (failure["file"], failure["line"], failure["crash"]) == (
            "test_a.py",
            14,
            {"file": "shop/cart.py", "line": 7},
        )
        assert (failure["message"], failure["output"]) == ("assert 3 == 4", "printed")
        second = await watcher.get(f"/runs/{run}/results?after={first['next']}")
        assert [each["test"] for each in second["results"]] == ["test_b"]
        assert not second["more"]
        watcher.runs.outcomes.put_nowait((passed("test_b"),))
        watcher.runs.outcomes.put_nowait(Outcome.PASSED)
        await watcher.end_of(run)
        last = await watcher.get(f"/runs/{run}/results?after={second['next']}")
        assert [(each["number"], each["test"]) for each in last["results"]] == [(3, "test_b"), (4, TEST)]
        assert (last["state"], last["ended"], last["more"], last["reset"]) == ("failed", True, False, False)
        nothing = await watcher.get(f"/runs/{run}/results?after={last['next']}")
        assert (nothing["results"], nothing["next"]) == ([], last["next"])

    play(story, policy=Policy.OFF)


def test_results_of_a_past_run_come_from_the_history_by_numbers_of_their_own() -> None:
    results = [Result(f"test_{number}", Outcome.PASSED, float("nan")) for number in range(5)]
    past = FakeHistory([old(1)], {"old.1": results})

    async def whole() -> None:
        with short_folder() as folder:
            async with bench(folder, policy=Policy.OFF, past=past) as watcher:
                first = await watcher.get("/runs/old.1/results?limit=2")
                assert [each["test"] for each in first["results"]] == ["test_0", "test_1"]
                assert (first["next"], first["reset"], first["ended"]) == (HISTORY_OFFSET + 2, False, True)
                rest = await watcher.get(f"/runs/old.1/results?after={first['next']}")
                assert [each["test"] for each in rest["results"]] == ["test_2", "test_3", "test_4"]
                assert rest["results"][0]["duration_s"] == 0.0
                reread = await watcher.get("/runs/old.1/results?after=3")  # a number from when it was in memory
                assert (reread["reset"], len(reread["results"])) == (True, 5)
                with pytest.raises(RequestRefused, match=r"no run old\.2"):
                    await watcher.get("/runs/old.2/results")

    asyncio.run(whole())


def test_a_page_ends_where_it_would_be_too_long() -> None:
    results = [failed(f"test_{number}", output="x" * 900_000) for number in range(4)]
    page = page_of(results, 0, 100)
    assert ([number for number, _ in page.results], page.next, page.has_more) == ([1, 2], 2, True)
    rest = page_of(results, page.next, 100)
    assert ([number for number, _ in rest.results], rest.has_more) == ([3, 4], False)


def test_of_ended_runs_only_as_many_results_are_kept_as_fit() -> None:
    logs = ResultLogs(size_limit=5000)
    story = Story()
    runs = []
    for number in range(4):
        story.run(f"tree{number}", failed("test_a.py::test_red", output="x" * 2000))
        runs.append(story.state.top.runs.last.run.id)  # type: ignore[union-attr]
    for before, after, event in story.steps:
        logs.follow(tuple(facts_of(before, after, event)))
    assert [logs.page(run, 0, 10) is not None for run in runs] == [False, False, True, True]


def test_a_file_that_cannot_be_collected_is_among_the_results() -> None:
    logs = ResultLogs()
    story = Story().change("code.py").sync("tree1")
    run = story.working.run.id
    story.end("tree1", [], exit_code=2, collection_errors=(failed("test_broken.py"),))
    for before, after, event in story.steps:
        logs.follow(tuple(facts_of(before, after, event)))
    page = logs.page(run, 0, 10)
    assert page is not None
    assert [(number, result.test) for number, result in page.results] == [(1, "test_broken.py")]
