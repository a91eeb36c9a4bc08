"""Single decisions of `step` that the laws leave open."""

from __future__ import annotations

from dataclasses import replace

from watchtest.core.events import (
    EVERYTHING,
    BoxLost,
    BoxSeen,
    Broke,
    CancelAsked,
    Changed,
    Effect,
    Ending,
    Event,
    Halted,
    Hindered,
    Judged,
    Leave,
    LookAgain,
    PauseAsked,
    QuitAsked,
    ResumeAsked,
    RunAsked,
    RunEnded,
    StartRun,
    StopRun,
    Unchanged,
    WakeAt,
    Woke,
)
from watchtest.core.model import (
    All,
    BoxInfo,
    Entry,
    Execution,
    Kind,
    Lane,
    Only,
    Outcome,
    Policy,
    Problem,
    Result,
    RunState,
    Snapshot,
    Stop,
    Trigger,
    Verdict,
)
from watchtest.core.state import Broken, Idle, LaneState, State, Working
from watchtest.core.step import RETRY_LIMIT, RETRY_LONGEST_S, leave, step

SAVE = Lane.SAVE
GREEN = Execution(0, frozenset({"t"}), {"t": Result("t", Outcome.PASSED, 0.1)})
GONE = Problem("engine", "gone")
ENTRY = Entry(Kind.FILE, 0o644, 1, "digest")


class Watch:
    """A lane and the effects it asked for, event by event."""

    def __init__(self, policy: Policy = Policy.ALL, once: bool = False) -> None:
        self.state = State({SAVE: LaneState(SAVE, policy, session="s")}, once=once)
        self.now = 0.0

    @property
    def lane(self) -> LaneState:
        return self.state.lanes[SAVE]

    def happen(self, event: Event) -> tuple[Effect, ...]:
        self.state, effects = step(self.state, event)
        return effects

    def save(self, path: str = "a.py") -> tuple[Effect, ...]:
        self.now += 1
        return self.happen(Changed(SAVE, self.now, frozenset({path})))

    def end(self, ending: Ending) -> tuple[Effect, ...]:
        self.now += 1
        assert isinstance(self.lane.activity, Working)
        return self.happen(RunEnded(SAVE, self.now, self.lane.activity.run.id, ending))


def started(effects: tuple[Effect, ...]) -> StartRun | None:
    return next((effect for effect in effects if isinstance(effect, StartRun)), None)


def snapshot(tree: str) -> Snapshot:
    return Snapshot(tree, {tree: ENTRY})


def green(tree: str = "t1") -> Judged:
    return Judged(snapshot(tree), GREEN)


def test_a_save_starts_a_run_and_a_save_meanwhile_the_next() -> None:
    watch = Watch()
    first = started(watch.save())
    assert first is not None
    assert first.run.trigger is Trigger.SAVE
    assert watch.save() == ()
    second = started(watch.end(green()))
    assert second is not None
    assert second.run.id != first.run.id
    assert started(watch.end(green("t2"))) is None
    assert watch.lane.knowledge.verdict is Verdict.PASSED


def test_a_lane_that_is_off_runs_only_when_asked() -> None:
    watch = Watch(Policy.OFF)
    assert watch.save() == ()
    run = started(watch.happen(RunAsked(SAVE, 2.0)))
    assert run is not None
    assert run.run.is_forced


def test_a_pause_holds_changes_and_resuming_runs_them_once() -> None:
    watch = Watch()
    watch.happen(PauseAsked(SAVE, 1.0))
    assert watch.save("a") == watch.save("b") == ()
    assert started(watch.happen(ResumeAsked(SAVE, 9.0))) is not None
    assert started(watch.end(green())) is None


def test_a_cancelled_run_gives_its_changes_back_and_waits() -> None:
    watch = Watch()
    watch.save("a")
    assert [type(effect) for effect in watch.happen(CancelAsked(SAVE, 2.0))] == [StopRun]
    assert watch.end(Halted(Stop.CANCELLED)) == ()
    assert watch.lane.pending.paths == {"a"}
    assert watch.lane.activity == Idle(is_held=True)
    assert watch.lane.last is not None
    assert watch.lane.last.state is RunState.CANCELLED
    again = started(watch.save("b"))
    assert again is not None
    assert isinstance(watch.lane.activity, Working)
    assert watch.lane.activity.carried.paths == {"a", "b"}


def test_a_kill_after_a_cancel_is_passed_on_and_a_second_cancel_is_not() -> None:
    watch = Watch()
    watch.save()
    assert watch.happen(CancelAsked(SAVE, 2.0)) != ()
    assert watch.happen(CancelAsked(SAVE, 3.0)) == ()
    assert watch.happen(CancelAsked(SAVE, 4.0, is_kill=True)) != ()
    assert watch.happen(CancelAsked(SAVE, 5.0)) == ()


def test_a_superseded_run_is_followed_at_once() -> None:
    watch = Watch()
    watch.save("a")
    assert started(watch.end(Halted(Stop.SUPERSEDED))) is not None


def test_an_unchanged_tree_is_no_run() -> None:
    watch = Watch()
    watch.save()
    watch.end(green())
    watch.save()
    assert started(watch.end(Unchanged(snapshot("t1")))) is None
    assert watch.lane.strip == (RunState.PASSED,)
    assert not watch.lane.pending


def test_a_passing_problem_is_tried_again_ever_later_and_then_given_up() -> None:
    watch = Watch()
    watch.save()
    waits = []
    for _ in range(RETRY_LIMIT - 1):
        (wake,) = watch.end(Broke(GONE, is_passing=True))
        assert isinstance(wake, WakeAt)
        waits.append(wake.at - watch.now)
        assert watch.happen(Woke(SAVE, wake.at - 0.1)) == ()
        watch.now = wake.at
        assert started(watch.happen(Woke(SAVE, wake.at))) is not None
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.5, RETRY_LONGEST_S)
    assert watch.end(Broke(GONE, is_passing=True)) == ()
    assert watch.lane.activity == Broken(GONE, RETRY_LIMIT, None)
    assert watch.lane.pending.paths == {"a.py"}


def test_a_lasting_problem_is_not_tried_again_before_the_next_change() -> None:
    watch = Watch()
    watch.save()
    assert watch.end(Broke(GONE, is_passing=False)) == ()
    assert watch.lane.problem == GONE
    assert started(watch.save()) is not None


def test_a_change_that_came_while_it_broke_is_tried_at_once() -> None:
    watch = Watch()
    watch.save("requirements.txt")
    watch.save("requirements.txt")
    assert started(watch.end(Broke(GONE, is_passing=False))) is not None


def test_a_manual_run_that_broke_is_still_owed() -> None:
    watch = Watch()
    wanted = Only(("t",), because="asked")
    watch.happen(RunAsked(SAVE, 1.0, wanted))
    (wake,) = watch.end(Broke(GONE, is_passing=True))
    assert isinstance(wake, WakeAt)
    again = started(watch.happen(Woke(SAVE, wake.at)))
    assert again is not None
    assert again.run.selection == wanted


def lost(watch: Watch) -> tuple[Effect, ...]:
    watch.now += 1
    return watch.happen(BoxLost(SAVE, watch.now, GONE))


def test_a_box_lost_at_rest_is_looked_after_and_nothing_is_claimed_meanwhile() -> None:
    watch = Watch()
    watch.save()
    watch.end(replace(green(), box="1a2b"))
    (wake,) = lost(watch)
    assert wake == WakeAt(SAVE, watch.now + 0.5)
    assert watch.lane.problem == GONE
    assert watch.lane.pending, "green and pending is not green"
    start = started(watch.happen(Woke(SAVE, watch.now + 0.5)))
    assert start is not None
    assert start.known_box == "1a2b"
    assert start.paths == {EVERYTHING}
    assert watch.lane.problem == GONE, "until the box is there again"
    watch.happen(BoxSeen(SAVE, watch.now, BoxInfo("docker", "1a2b", "python", "running", 0.0)))
    assert watch.lane.problem is None
    watch.end(Unchanged(snapshot("t1")))
    assert watch.lane.activity == Idle()
    assert watch.lane.knowledge.verdict is Verdict.PASSED


def test_a_box_lost_in_the_middle_of_a_run_is_that_runs_own_matter_first() -> None:
    watch = Watch()
    watch.save()
    assert lost(watch) == ()
    assert isinstance(watch.lane.activity, Working)
    (wake,) = watch.end(green())
    assert isinstance(wake, WakeAt), "it had not noticed, so somebody else has to"
    assert watch.lane.problem == GONE


def test_a_box_that_came_back_in_the_middle_of_a_run_is_not_lost() -> None:
    watch = Watch()
    watch.save()
    lost(watch)
    watch.happen(BoxSeen(SAVE, watch.now, BoxInfo("docker", "1a2b", "python", "running", 0.0)))
    watch.end(green())
    assert watch.lane.activity == Idle()


def test_a_lane_that_gave_up_tries_once_more_when_its_box_is_gone() -> None:
    watch = Watch()
    watch.save()
    watch.end(Broke(GONE, is_passing=False))
    assert started(lost(watch)) is not None
    watch.end(Broke(GONE, is_passing=False))
    assert watch.lane.activity == Broken(GONE, 1, None)


def test_a_superseded_manual_run_is_still_owed() -> None:
    watch = Watch()
    watch.happen(RunAsked(SAVE, 1.0))
    start = started(watch.end(Halted(Stop.SUPERSEDED)))
    assert start is not None
    assert start.run.is_forced


def test_a_box_lost_after_a_cancel_is_said_and_left_for_the_next_run() -> None:
    watch = Watch()
    watch.happen(RunAsked(SAVE, 1.0))
    watch.happen(CancelAsked(SAVE, 1.1))
    watch.end(Halted(Stop.CANCELLED))
    assert lost(watch) == ()
    assert watch.lane.problem == GONE
    assert started(watch.save()) is not None


def test_a_lane_that_is_off_does_not_heal_its_box() -> None:
    watch = Watch(Policy.OFF)
    watch.happen(RunAsked(SAVE, 1.0))
    watch.end(green())
    assert lost(watch) == ()


def test_an_engine_that_is_away_is_waited_for_without_an_end() -> None:
    watch = Watch()
    watch.save()
    for _ in range(3 * RETRY_LIMIT):
        (wake,) = watch.end(Broke(GONE, is_passing=True, is_awaited=True))
        assert isinstance(wake, WakeAt)
        assert wake.at - watch.now <= 30
        watch.now = wake.at
        assert started(watch.happen(Woke(SAVE, watch.now))) is not None


def test_the_failed_policy_runs_the_red_ones_and_then_all() -> None:
    watch = Watch(Policy.FAILED)
    first = started(watch.save())
    assert first is not None
    assert isinstance(first.run.selection, All)
    red = replace(GREEN, exit_code=1, results={"t": Result("t", Outcome.FAILED, 0.1)})
    watch.end(Judged(snapshot("t1"), red))
    second = started(watch.save())
    assert second is not None
    assert isinstance(second.run.selection, Only)
    assert second.run.selection.tests == ("t",)
    assert started(watch.end(Judged(snapshot("t2"), red))) is None, "still red: no endless loop"
    watch.save()
    third = started(watch.end(green("t3")))
    assert third is not None
    assert isinstance(third.run.selection, All)


def test_only_some_tests_of_a_tree_do_not_make_it_known() -> None:
    """A save without new content after such a run must not be taken for "unchanged"."""
    watch = Watch(Policy.FAILED)
    watch.save()
    red = replace(GREEN, exit_code=1, results={"t": Result("t", Outcome.FAILED, 0.1)})
    watch.end(Judged(snapshot("t1"), red))
    watch.save()
    watch.end(Judged(snapshot("t2"), red))
    again = started(watch.save())
    assert again is not None
    assert again.known_snapshot is None


def test_a_look_at_named_paths_alone_asks_for_a_second_look() -> None:
    watch = Watch()
    watch.save(EVERYTHING)
    assert watch.end(green()) == ()
    watch.save("a.py")
    assert [type(effect) for effect in watch.end(green("t2"))] == [LookAgain]


def test_a_lower_lane_waits_for_a_higher_one_and_says_so() -> None:
    lanes = {lane: LaneState(lane, Policy.ALL, session=lane.value) for lane in Lane}
    state = State(lanes)
    state, effects = step(state, Changed(Lane.COMMIT, 1.0, frozenset({"HEAD"})))
    assert [effect.run.lane for effect in effects if isinstance(effect, StartRun)] == [Lane.COMMIT]
    state, effects = step(state, Changed(Lane.SAVE, 2.0, frozenset({"a"})))
    assert [effect.run.lane for effect in effects if isinstance(effect, StartRun)] == [Lane.SAVE], "never held up"
    state, effects = step(state, Changed(Lane.STAGE, 3.0, frozenset({"index"})))
    assert effects == ()
    assert state.lanes[Lane.STAGE].waits_for == "the save lane goes first"
    state, effects = step(state, RunEnded(Lane.SAVE, 4.0, "save.1", green()))
    assert [effect.run.lane for effect in effects if isinstance(effect, StartRun)] == [Lane.STAGE]
    assert state.lanes[Lane.STAGE].waits_for == ""


def test_a_hindered_lane_keeps_its_changes_and_says_why() -> None:
    state = State({Lane.COMMIT: LaneState(Lane.COMMIT, Policy.ALL, session="c")})
    state, _ = step(state, Hindered(Lane.COMMIT, 1.0, "a rebase stands"))
    state, effects = step(state, Changed(Lane.COMMIT, 2.0, frozenset({"HEAD"})))
    assert effects == ()
    assert state.lanes[Lane.COMMIT].waits_for == "a rebase stands"
    state, effects = step(state, Hindered(Lane.COMMIT, 3.0, ""))
    assert [type(effect) for effect in effects] == [StartRun]


def test_once_leaves_with_the_first_end() -> None:
    watch = Watch(once=True)
    watch.save()
    assert Leave() in watch.end(green())


def test_once_leaves_when_it_gives_up() -> None:
    watch = Watch(once=True)
    watch.save()
    assert Leave() in watch.end(Broke(GONE, is_passing=False))


def test_quitting_stops_the_run_and_starts_no_other() -> None:
    watch = Watch()
    watch.save("a")
    watch.save("b")
    effects = watch.happen(QuitAsked(SAVE, 5.0))
    assert [type(effect) for effect in effects] == [StopRun, Leave]
    assert started(watch.end(Halted(Stop.CANCELLED))) is None
    assert leave(watch.state).lanes[SAVE].pending.paths == {"a", "b"}


def test_the_end_of_another_run_changes_nothing() -> None:
    watch = Watch()
    watch.save()
    before = watch.state
    assert watch.happen(RunEnded(SAVE, 3.0, "s.99", green())) == ()
    assert watch.state == before
