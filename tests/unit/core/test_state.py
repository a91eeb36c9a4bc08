"""When a lane has settled, which is what `status --wait` waits for."""

from __future__ import annotations

from support.watcher_states import LOST, Story, failed, passed, start

from watchtest.core.events import CancelRequested, Halted, PauseRequested, RunEnded, RunRequested, SourceChanged
from watchtest.core.model import Lane, Policy, StopReason
from watchtest.core.state import SettleStatus, settle_status

A, B = "tests/test_a.py::test_a", "tests/test_a.py::test_b"


def rest(story: Story) -> SettleStatus:
    return settle_status(story.state.lanes[story.lane])


def test_only_when_all_that_was_told_of_is_judged() -> None:
    story = Story()
    assert rest(story) == SettleStatus(False)
    story.change()
    assert rest(story) == SettleStatus(False)
    story.sync("t1").collect(A).results(passed(A))
    assert rest(story) == SettleStatus(False)
    story.end("t1", [passed(A)])
    assert rest(story) == SettleStatus(True)


def test_a_change_during_the_last_moment_of_a_run_is_waited_for() -> None:
    story = Story().change().sync("t1").collect(A).results(passed(A))
    story.on(SourceChanged(Lane.SAVE, story.now, frozenset({"a.py"})))
    story.end("t1", [passed(A)])
    assert not rest(story).is_settled
    story.sync("t2").end("t2", [passed(A)])
    assert rest(story).is_settled


def test_a_pause_is_no_rest_and_says_so() -> None:
    story = Story().run("t1", passed(A)).on(PauseRequested(Lane.SAVE, 1.0))
    assert rest(story) == SettleStatus(True)
    story.change("a.py")
    assert not rest(story).is_settled
    assert "resume" in rest(story).waits_for


def test_what_the_user_called_off_rests() -> None:
    story = Story().run("t1", passed(A)).change("a.py").on(CancelRequested(Lane.SAVE, 1.0))
    assert not rest(story).is_settled
    story.on(RunEnded(Lane.SAVE, story.now, story.working.run.id, Halted(StopReason.CANCELLED)))
    assert rest(story).is_settled


def test_a_red_part_that_lets_the_rest_wait_rests() -> None:
    story = Story(state=start(policy=Policy.FAILED)).run("t1", failed(A), passed(B))
    story.run("t2", failed(A))
    assert rest(story).is_settled


def test_a_lane_whose_trigger_is_off_runs_nothing_by_itself() -> None:
    story = Story(state=start(policy=Policy.OFF)).change("a.py")
    assert rest(story).is_settled
    story.on(RunRequested(Lane.SAVE, story.now))
    assert not rest(story).is_settled


def test_a_lane_that_broke_rests_once_it_is_given_up() -> None:
    story = Story().change("a.py").breaks(LOST)
    assert rest(story) == SettleStatus(False, LOST.message)
    story = Story().change("a.py").breaks(LOST, is_transient=False)
    assert rest(story) == SettleStatus(True, LOST.message)


def test_a_lane_that_waits_for_a_higher_one_says_so() -> None:
    story = Story(state=start(Lane.SAVE, Lane.COMMIT)).change("a.py")
    story.on(SourceChanged(Lane.COMMIT, story.now, frozenset({"HEAD 1"})))
    assert settle_status(story.state.lanes[Lane.COMMIT]) == SettleStatus(False, "the save lane goes first")
