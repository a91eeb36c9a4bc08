"""Real events go through `step` into a real store, and the queries read them back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.history_records import detail_of
from support.watcher_states import Story, failed, passed, snapshot, start

from watchtest.core.events import (
    CancelRequested,
    Halted,
    Judged,
    PauseRequested,
    QuitRequested,
    RunEnded,
    RunRequested,
    SourceCompared,
    TestsCollected,
    TestsEnded,
    Unchanged,
)
from watchtest.core.model import Execution, Lane, Only, Outcome, Result, RunState, StopReason
from watchtest.core.step import leave
from watchtest.history.queries.flaky_tests import flaky_now
from watchtest.history.queries.run_queries import RunDetail, recent_runs
from watchtest.history.run_recorder import RunRecorder
from watchtest.history.store.columns import AttemptKind
from watchtest.history.store.database_file import open_for_reading
from watchtest.history.store.retention import RetentionLimits
from watchtest.history.store.store import Store

A, B = "tests/test_a.py::test_a", "tests/test_b.py::test_b"
SOME = Only((A,), because="asked")


class Kept:
    """Gives a story to a recorder and reads the history back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.story = Story(start(Lane.SAVE))
        self.problems: list[str] = []

    @property
    def flaky(self) -> frozenset[str]:
        with open_for_reading(self.path) as connection:
            return flaky_now(connection, "/w", self.story.now)

    def ends(self) -> None:
        with RunRecorder(Store(self.path), "/w", self.problems.append) as recorder:
            for before, after, event in self.story.steps:
                recorder.show(before, after, event)
            recorder.show(self.story.state, leave(self.story.state), None)
        assert self.problems == []

    def run(self, name: str) -> RunDetail:
        with open_for_reading(self.path) as connection:
            found = detail_of(connection, name)
        assert found is not None, f"{name} is not in the history"
        return found

    def states(self, name: str) -> list[str]:
        return [each.state.value for each in self.run(name).transitions]

    def reasons(self, name: str) -> list[str]:
        return [each.reason for each in self.run(name).transitions]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "history.sqlite3")


def ask(story: Story, name: str = "", selection: Only | None = None) -> Story:
    story.now += 1
    return story.on(RunRequested(Lane.SAVE, story.now, selection, name))


def test_a_run_goes_through_all_its_states_each_at_its_time(kept: Kept) -> None:
    story = kept.story.change("a.py", "b.py").sync("t1")
    story.on(TestsCollected(Lane.SAVE, story.now + 5, "s.1", frozenset()))
    story.now += 5
    story.collect(A).results(passed(A)).end("t1", [passed(A)])
    kept.ends()
    assert kept.states("s.1") == ["queued", "syncing", "running", "passed"]
    assert kept.reasons("s.1") == ["a.py, b.py changed", "", "", ""]
    times = [each.at for each in kept.run("s.1").transitions]
    assert times == sorted(times)
    assert times[2] - times[1] >= 5, "setup is not the run"
    assert kept.run("s.1").run.tree == "t1"


def test_runs_that_were_asked_for_are_there_while_they_wait(kept: Kept) -> None:
    story = kept.story.change("a.py")
    ask(story, "s.ra", SOME)
    ask(story, "s.rb")
    story.sync("t1").collect(A).results(passed(A)).end("t1", [passed(A)])
    story.sync("t1").collect(A).results(passed(A)).end("t1", [passed(A)])
    kept.ends()
    assert kept.states("s.ra") == ["queued", "syncing", "running", "passed"]
    assert kept.reasons("s.ra")[0] == "requested"
    assert kept.run("s.ra").run.selected == 1
    assert kept.states("s.rb") == ["queued", "syncing", "cancelled"], "its turn had come when the watcher left"
    assert kept.reasons("s.rb")[-1] == "the watcher stopped"
    assert kept.run("s.rb").run.because == "all tests", "decided when it began"


def test_a_run_that_is_called_off_while_it_waits_has_an_end(kept: Kept) -> None:
    story = kept.story.change("a.py")
    ask(story, "s.ra")
    story.on(CancelRequested(Lane.SAVE, story.now, run="s.ra")).on(CancelRequested(Lane.SAVE, story.now, run="s.ra"))
    kept.ends()
    assert kept.states("s.ra") == ["queued", "cancelled"]
    assert kept.reasons("s.ra")[-1] == "cancelled before it began"


def test_a_run_that_is_refused_has_an_end(kept: Kept) -> None:
    story = kept.story.change("a.py")
    for number in range(21):
        ask(story, f"s.r{number}", SOME)
    kept.ends()
    assert kept.states("s.r20") == ["queued", "cancelled"]
    assert kept.reasons("s.r20")[-1] == "refused: 20 runs are already queued"
    assert kept.reasons("s.r19")[-1] == "the watcher stopped before it began"


def test_a_watcher_that_leaves_ends_what_waits(kept: Kept) -> None:
    story = kept.story.on(PauseRequested(Lane.SAVE, kept.story.now))
    ask(story, "s.ra")
    story.on(QuitRequested(Lane.SAVE, story.now))
    ask(story, "s.rb")
    kept.ends()
    assert kept.reasons("s.ra") == ["requested", "the watcher stopped before it began"]
    assert kept.reasons("s.rb") == ["requested", "refused: the watcher is stopping"]


def test_a_superseded_run_keeps_its_results_and_names_what_goes_on_for_it(kept: Kept) -> None:
    story = ask(kept.story, "s.ra", SOME)
    story.change("code.py").sync("t1").collect(A, B).results(failed(A))
    story.on(SourceCompared(Lane.SAVE, story.now, "s.ra", frozenset({"code.py"})))
    story.on(RunEnded(Lane.SAVE, story.now, "s.ra", Halted(StopReason.SUPERSEDED)))
    kept.ends()
    assert kept.states("s.ra") == ["queued", "syncing", "running", "superseded"]
    assert kept.reasons("s.ra")[-1] == "code.py changed; continues as run s.1"
    assert [each.result.test for each in kept.run("s.ra").results] == [A]
    assert kept.reasons("s.1")[0] == "requested"
    assert kept.run("s.1").run.selected == 1


def test_a_run_that_found_nothing_new_was_none(kept: Kept) -> None:
    story = kept.story.run("t1", passed(A)).change("a.py")
    story.on(RunEnded(Lane.SAVE, story.now, "s.2", Unchanged(snapshot("t1"))))
    kept.ends()
    with open_for_reading(kept.path) as connection:
        assert detail_of(connection, "s.2") is None


def test_the_test_in_which_the_process_crashed_is_kept_as_its_result(kept: Kept) -> None:
    story = kept.story.change("a.py").sync("t1").collect(A, B).results(passed(A))
    crash = Execution(
        None,
        frozenset({A, B}),
        {A: passed(A)},
        reason="the process was ended by SIGSEGV",
        has_finished=False,
        current=B,
        stacks="here",
    )
    story.on(RunEnded(Lane.SAVE, story.now, "s.1", Judged(snapshot("t1"), crash)))
    kept.ends()
    run = kept.run("s.1")
    assert run.run.state is RunState.ERROR
    assert run.run.reason == f"the process was ended by SIGSEGV, in {B}"
    by_test = {each.result.test: each.result for each in run.results}
    assert by_test[B].outcome is Outcome.ERROR
    assert by_test[B].failure is not None
    assert (by_test[B].failure.kind, by_test[B].failure.text) == ("crashed", "here")


# -- attempts, chance, and what is let go ----------------------------------------------------------


def check(story: Story, *results: Result) -> Story:
    return story.on(TestsEnded(Lane.SAVE, story.now, "s.1", results, is_check=True))


def test_what_a_fresh_process_says_is_the_last_word_and_kept_as_such(kept: Kept) -> None:
    story = kept.story.change("a.py").sync("t1").collect(A, B).results(failed(A), failed(B))
    check(story, failed(A), passed(B)).end("t1", [failed(A), passed(B)])
    kept.ends()
    told = [(each.result.test, each.result.outcome, each.kind) for each in kept.run("s.1").results]
    assert told == [
        (A, Outcome.FAILED, AttemptKind.WORD),
        (A, Outcome.FAILED, AttemptKind.CHECK),
        (B, Outcome.FAILED, AttemptKind.WORD),
        (B, Outcome.PASSED, AttemptKind.CHECK),
    ]
    assert kept.run("s.1").run.counts == {Outcome.PASSED: 1, Outcome.FAILED: 1}
    assert kept.flaky == frozenset()


def test_what_was_seen_to_be_chance_is_marked_from_then_on(kept: Kept) -> None:
    story = kept.story.change("a.py").sync("t1").collect(A).results(failed(A))
    check(story, passed(A))
    execution = Execution(0, frozenset({A}), {A: passed(A)}, by_chance=(A,))
    story.on(RunEnded(Lane.SAVE, story.now, "s.1", Judged(snapshot("t1"), execution)))
    kept.ends()
    assert kept.run("s.1").run.state is RunState.PASSED
    assert kept.flaky == {A}


def test_each_part_of_a_run_has_its_time(kept: Kept) -> None:
    story = kept.story.change("a.py").sync("t1")
    story.on(TestsCollected(Lane.SAVE, story.now + 5, "s.1", frozenset()))
    story.now += 5
    story.collect(A).results(passed(A)).end("t1", [passed(A)])
    kept.ends()
    timings = kept.run("s.1").run.timings
    assert (timings.wait_s, timings.sync_s) == (0.0, pytest.approx(0.1))
    assert timings.select_s == pytest.approx(5)
    assert (timings.start_s, timings.run_s) == (pytest.approx(0.1), pytest.approx(0.2))


def test_results_are_kept_before_the_views_behind_show_them(kept: Kept) -> None:
    story = kept.story.change("a.py").sync("t1").collect(A).results(passed(A))
    with RunRecorder(Store(kept.path), "/w", kept.problems.append) as recorder:
        for before, after, event in story.steps:
            recorder.show(before, after, event)
        assert [each.result.test for each in kept.run("s.1").results] == [A]


def test_what_finds_no_room_is_kept_when_there_is_some(kept: Kept) -> None:
    names = [f"tests/test_a.py::test_{number}_{'x' * 200}" for number in range(200)]
    results = [passed(name) for name in names]
    story = kept.story.change("a.py").sync("t1").collect(*names).results(*results).end("t1", results)
    store = Store(kept.path)
    with RunRecorder(store, "/w", kept.problems.append) as recorder:
        pages = store.query(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
        store.query(lambda c: c.execute(f"PRAGMA max_page_count = {pages}").fetchone())
        for before, after, event in story.steps:
            recorder.show(before, after, event)
        deadline = time.monotonic() + 10
        while not kept.problems and time.monotonic() < deadline:
            time.sleep(0.01)
        store.query(lambda c: c.execute("PRAGMA max_page_count = 1000000").fetchone())
    (problem,) = kept.problems
    assert "the disk is full" in problem
    assert (kept.run("s.1").run.state, len(kept.run("s.1").results)) == (RunState.PASSED, 200)


def test_a_watcher_lets_go_what_is_beyond_the_limits(kept: Kept) -> None:
    for number in range(4):
        kept.story.run(f"t{number}", passed(A))
    kept.ends()
    with RunRecorder(Store(kept.path), "/w", kept.problems.append, limits=RetentionLimits(runs=2)):
        pass
    with open_for_reading(kept.path) as connection:
        assert [run.id for run in recent_runs(connection, limit=9)] == ["s.4", "s.3"]
    assert kept.problems == []
