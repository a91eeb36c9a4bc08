"""Single decisions of `step` that the laws do not cover."""

from __future__ import annotations

from dataclasses import replace

import pytest

from watchtest.core.events import (
    EVERYTHING,
    BoxConnected,
    BoxLost,
    CancelRequested,
    CompareSource,
    Effect,
    Ending,
    Event,
    Halted,
    Judged,
    Leave,
    PauseRequested,
    PolicyRequested,
    QuitRequested,
    RecheckSource,
    ResumeRequested,
    RunEnded,
    RunRequested,
    ServicesChanged,
    SetTimer,
    SnapshotTaken,
    SourceBlocked,
    SourceChanged,
    SourceCompared,
    StartRun,
    StopRun,
    TestsCollected,
    TestsEnded,
    TimerFired,
    ToolFailure,
    Unchanged,
)
from watchtest.core.model import (
    All,
    BoxInfo,
    Entry,
    EntryKind,
    Execution,
    Failure,
    Lane,
    OnChange,
    Only,
    Outcome,
    Policy,
    Problem,
    Result,
    RunState,
    ServiceInfo,
    Snapshot,
    StopReason,
    Trigger,
    Verdict,
)
from watchtest.core.retry import RETRY_LIMIT, RETRY_LONGEST_S
from watchtest.core.run_queue import WAITING_LIMIT
from watchtest.core.state import Broken, GivenUp, Idle, LaneSettings, LaneState, State, Working
from watchtest.core.step import leave, step

SAVE = Lane.SAVE
GREEN = Execution(0, frozenset({"t"}), {"t": Result("t", Outcome.PASSED, 0.1)})
GONE = Problem("engine", "gone")
ENTRY = Entry(EntryKind.FILE, 0o644, 1, "digest")


class Watch:
    """A lane and the effects it requested, event by event."""

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
        return self.happen(SourceChanged(SAVE, self.now, frozenset({path})))

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
    run = started(watch.happen(RunRequested(SAVE, 2.0)))
    assert run is not None
    assert run.run.is_forced


def test_a_pause_holds_changes_and_resuming_runs_them_once() -> None:
    watch = Watch()
    watch.happen(PauseRequested(SAVE, 1.0))
    assert watch.save("a") == watch.save("b") == ()
    assert started(watch.happen(ResumeRequested(SAVE, 9.0))) is not None
    assert started(watch.end(green())) is None


def test_a_cancelled_run_gives_its_changes_back_and_waits() -> None:
    watch = Watch()
    watch.save("a")
    assert [type(effect) for effect in watch.happen(CancelRequested(SAVE, 2.0))] == [StopRun]
    assert watch.end(Halted(StopReason.CANCELLED)) == ()
    assert watch.lane.pending.paths == {"a"}
    assert watch.lane.activity == Idle(is_held=True)
    assert watch.lane.runs.last is not None
    assert watch.lane.runs.last.state is RunState.CANCELLED
    again = started(watch.save("b"))
    assert again is not None
    assert isinstance(watch.lane.activity, Working)
    assert watch.lane.activity.changes.paths == {"a", "b"}


def test_a_kill_after_a_cancel_is_passed_on_and_a_second_cancel_is_not() -> None:
    watch = Watch()
    watch.save()
    assert watch.happen(CancelRequested(SAVE, 2.0)) != ()
    assert watch.happen(CancelRequested(SAVE, 3.0)) == ()
    assert watch.happen(CancelRequested(SAVE, 4.0, is_kill=True)) != ()
    assert watch.happen(CancelRequested(SAVE, 5.0)) == ()


def test_a_superseded_run_is_followed_at_once() -> None:
    watch = Watch()
    watch.save("a")
    assert started(watch.end(Halted(StopReason.SUPERSEDED))) is not None


def test_an_unchanged_tree_is_no_run() -> None:
    watch = Watch()
    watch.save()
    watch.end(green())
    watch.save()
    assert started(watch.end(Unchanged(snapshot("t1")))) is None
    assert watch.lane.runs.recent_states == (RunState.PASSED,)
    assert not watch.lane.pending


def test_a_passing_problem_is_tried_again_ever_later_and_then_given_up() -> None:
    watch = Watch()
    watch.save()
    waits = []
    for _ in range(RETRY_LIMIT - 1):
        (wake,) = watch.end(ToolFailure(GONE, is_transient=True))
        assert isinstance(wake, SetTimer)
        waits.append(wake.at - watch.now)
        assert watch.happen(TimerFired(SAVE, wake.at - 0.1)) == ()
        watch.now = wake.at
        assert started(watch.happen(TimerFired(SAVE, wake.at))) is not None
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.5, RETRY_LONGEST_S)
    assert watch.end(ToolFailure(GONE, is_transient=True)) == ()
    assert watch.lane.activity == Broken(GONE, RETRY_LIMIT, GivenUp())
    assert watch.lane.pending.paths == {"a.py"}


def test_a_lasting_problem_is_not_tried_again_before_the_next_change() -> None:
    watch = Watch()
    watch.save()
    assert watch.end(ToolFailure(GONE, is_transient=False)) == ()
    assert watch.lane.problem == GONE
    assert started(watch.save()) is not None


def test_a_change_that_came_while_it_broke_is_tried_at_once() -> None:
    watch = Watch()
    watch.save("requirements.txt")
    watch.save("requirements.txt")
    assert started(watch.end(ToolFailure(GONE, is_transient=False))) is not None


def test_a_manual_run_that_broke_is_still_owed() -> None:
    watch = Watch()
    wanted = Only(("t",), because="asked")
    watch.happen(RunRequested(SAVE, 1.0, wanted))
    (wake,) = watch.end(ToolFailure(GONE, is_transient=True))
    assert isinstance(wake, SetTimer)
    again = started(watch.happen(TimerFired(SAVE, wake.at)))
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
    assert wake == SetTimer(SAVE, watch.now + 0.5)
    assert watch.lane.problem == GONE
    assert watch.lane.pending, "green and pending is not green"
    start = started(watch.happen(TimerFired(SAVE, watch.now + 0.5)))
    assert start is not None
    assert start.knowledge.box == "1a2b"
    assert start.paths == {EVERYTHING}
    assert watch.lane.problem == GONE, "until the box is there again"
    watch.happen(BoxConnected(SAVE, watch.now, BoxInfo("docker", "1a2b", "python", "running", 0.0)))
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
    assert isinstance(wake, SetTimer), "the run had not noticed, so the lane has to"
    assert watch.lane.problem == GONE


def test_a_box_that_its_own_tests_have_ended_waits_for_the_next_save() -> None:
    watch = Watch()
    watch.save()
    lost(watch)
    ending = green()
    watch.end(replace(ending, execution=replace(ending.execution, has_lost_box=True)))
    assert watch.lane.activity == Idle(), "the same tests would end it again"
    assert not watch.lane.pending
    assert started(watch.save()) is not None


def test_a_box_that_came_back_in_the_middle_of_a_run_is_not_lost() -> None:
    watch = Watch()
    watch.save()
    lost(watch)
    watch.happen(BoxConnected(SAVE, watch.now, BoxInfo("docker", "1a2b", "python", "running", 0.0)))
    watch.end(green())
    assert watch.lane.activity == Idle()


def test_a_lane_that_gave_up_tries_once_more_when_its_box_is_gone() -> None:
    watch = Watch()
    watch.save()
    watch.end(ToolFailure(GONE, is_transient=False))
    assert started(lost(watch)) is not None
    watch.end(ToolFailure(GONE, is_transient=False))
    assert watch.lane.activity == Broken(GONE, 1, GivenUp())


@pytest.mark.parametrize(("state", "effects"), [("backoff", 1), ("starting", 1), ("ready", 0), ("failed", 0)])
def test_a_save_ends_the_wait_for_a_service_that_it_may_mend(state: str, effects: int) -> None:
    watch = Watch()
    watch.save()
    assert isinstance(watch.lane.activity, Working)
    run = watch.lane.activity.run.id
    watch.happen(ServicesChanged(SAVE, watch.now, (ServiceInfo("kv", state, 0.0),)))
    assert watch.save("server.py") == (StopRun(SAVE, run, StopReason.SUPERSEDED),) * effects
    assert watch.save("server.py") == (), "reported once"


def test_a_superseded_manual_run_is_still_owed() -> None:
    watch = Watch()
    watch.happen(RunRequested(SAVE, 1.0))
    start = started(watch.end(Halted(StopReason.SUPERSEDED)))
    assert start is not None
    assert start.run.is_forced


def test_a_box_lost_after_a_cancel_is_said_and_left_for_the_next_run() -> None:
    watch = Watch()
    watch.happen(RunRequested(SAVE, 1.0))
    watch.happen(CancelRequested(SAVE, 1.1))
    watch.end(Halted(StopReason.CANCELLED))
    assert lost(watch) == ()
    assert watch.lane.problem == GONE
    assert started(watch.save()) is not None


def test_a_lane_that_is_off_does_not_heal_its_box() -> None:
    watch = Watch(Policy.OFF)
    watch.happen(RunRequested(SAVE, 1.0))
    watch.end(green())
    assert lost(watch) == ()


def test_an_engine_that_is_away_is_waited_for_without_an_end() -> None:
    watch = Watch()
    watch.save()
    for _ in range(3 * RETRY_LIMIT):
        (wake,) = watch.end(ToolFailure(GONE, is_transient=True, retries_forever=True))
        assert isinstance(wake, SetTimer)
        assert wake.at - watch.now <= 30
        watch.now = wake.at
        assert started(watch.happen(TimerFired(SAVE, watch.now))) is not None


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


@pytest.mark.parametrize("policy", [Policy.AFFECTED, Policy.ALL])
def test_changes_do_not_stay_pending_behind_a_red_run_that_was_requested(policy: Policy) -> None:
    watch = Watch(policy)
    red = replace(GREEN, exit_code=1, results={"t": Result("t", Outcome.FAILED, 0.1)})
    watch.save()
    watch.happen(PauseRequested(SAVE, 1.5))
    watch.end(Judged(snapshot("t1"), red))
    watch.save()
    watch.happen(RunRequested(SAVE, 3.0, only("t")))
    requested = started(watch.happen(ResumeRequested(SAVE, 3.5)))
    assert requested is not None
    assert requested.run.selection == only("t")
    rest = started(watch.end(Judged(snapshot("t2"), red)))
    assert rest is not None
    assert isinstance(rest.run.selection, All)
    assert rest.paths == {"a.py"}
    assert started(watch.end(Judged(snapshot("t2"), red))) is None
    assert not watch.lane.pending


def test_changes_that_wait_for_failed_tests_are_tested_when_that_policy_ends() -> None:
    watch = Watch()
    red = replace(GREEN, exit_code=1, results={"t": Result("t", Outcome.FAILED, 0.1)})
    watch.save()
    watch.end(Judged(snapshot("t1"), red))
    watch.happen(PolicyRequested(SAVE, 2.0, Policy.FAILED))
    watch.save()
    assert started(watch.end(Judged(snapshot("t2"), red))) is None
    assert watch.lane.pending
    rest = started(watch.happen(PolicyRequested(SAVE, 3.0, Policy.ALL)))
    assert rest is not None
    assert isinstance(rest.run.selection, All)


def test_only_some_tests_of_a_tree_do_not_make_it_known() -> None:
    """A save without new content after such a run must not count as "unchanged"."""
    watch = Watch(Policy.FAILED)
    watch.save()
    red = replace(GREEN, exit_code=1, results={"t": Result("t", Outcome.FAILED, 0.1)})
    watch.end(Judged(snapshot("t1"), red))
    watch.save()
    watch.end(Judged(snapshot("t2"), red))
    again = started(watch.save())
    assert again is not None
    assert again.knowledge.last_judged_tree is None


def test_a_look_at_named_paths_alone_asks_for_a_second_look() -> None:
    watch = Watch()
    watch.save(EVERYTHING)
    assert watch.end(green()) == ()
    watch.save("a.py")
    assert [type(effect) for effect in watch.end(green("t2"))] == [RecheckSource]


def test_a_lower_lane_waits_for_a_higher_one_and_says_so() -> None:
    lanes = {lane: LaneState(lane, Policy.ALL, session=lane.value) for lane in Lane}
    state = State(lanes)
    state, effects = step(state, SourceChanged(Lane.COMMIT, 1.0, frozenset({"HEAD"})))
    assert [effect.run.lane for effect in effects if isinstance(effect, StartRun)] == [Lane.COMMIT]
    state, effects = step(state, SourceChanged(Lane.SAVE, 2.0, frozenset({"a"})))
    assert [effect.run.lane for effect in effects if isinstance(effect, StartRun)] == [Lane.SAVE], "never delayed"
    state, effects = step(state, SourceChanged(Lane.STAGE, 3.0, frozenset({"index"})))
    assert effects == ()
    assert state.lanes[Lane.STAGE].waits_for == "the save lane goes first"
    state, effects = step(state, RunEnded(Lane.SAVE, 4.0, "save.1", green()))
    assert [effect.run.lane for effect in effects if isinstance(effect, StartRun)] == [Lane.STAGE]
    assert state.lanes[Lane.STAGE].waits_for == ""


def test_a_hindered_lane_keeps_its_changes_and_says_why() -> None:
    state = State({Lane.COMMIT: LaneState(Lane.COMMIT, Policy.ALL, session="c")})
    state, _ = step(state, SourceBlocked(Lane.COMMIT, 1.0, "a rebase is in progress"))
    state, effects = step(state, SourceChanged(Lane.COMMIT, 2.0, frozenset({"HEAD"})))
    assert effects == ()
    assert state.lanes[Lane.COMMIT].waits_for == "a rebase is in progress"
    state, effects = step(state, SourceBlocked(Lane.COMMIT, 3.0, ""))
    assert [type(effect) for effect in effects] == [StartRun]


def test_once_leaves_with_the_first_end() -> None:
    watch = Watch(once=True)
    watch.save()
    assert Leave() in watch.end(green())


def test_once_leaves_when_it_gives_up() -> None:
    watch = Watch(once=True)
    watch.save()
    assert Leave() in watch.end(ToolFailure(GONE, is_transient=False))


def test_quitting_stops_the_run_and_starts_no_other() -> None:
    watch = Watch()
    watch.save("a")
    watch.save("b")
    effects = watch.happen(QuitRequested(SAVE, 5.0))
    assert [type(effect) for effect in effects] == [StopRun, Leave]
    assert started(watch.end(Halted(StopReason.CANCELLED))) is None
    assert leave(watch.state).lanes[SAVE].pending.paths == {"a", "b"}


def test_the_end_of_another_run_changes_nothing() -> None:
    watch = Watch()
    watch.save()
    before = watch.state
    assert watch.happen(RunEnded(SAVE, 3.0, "s.99", green())) == ()
    assert watch.state == before


# -- runs that were asked for ----------------------------------------------------------------------


def under_way(watch: Watch) -> str:
    assert isinstance(watch.lane.activity, Working)
    return watch.lane.activity.run.id


def only(test: str) -> Only:
    return Only((test,), because="asked")


def test_runs_that_are_asked_for_meanwhile_run_one_after_the_other_under_their_ids() -> None:
    watch = Watch()
    watch.save()
    watch.happen(RunRequested(SAVE, 2.0, only("a"), id="s.ra"))
    watch.happen(RunRequested(SAVE, 3.0, only("b")))
    watch.happen(RunRequested(SAVE, 4.0, only("c"), id="s.rc"))
    names = []
    for _ in range(3):
        start = started(watch.end(green()))
        assert start is not None
        names.append((start.run.id, start.run.selection))
    assert names == [("s.ra", only("a")), ("s.2", only("b")), ("s.rc", only("c"))]


def test_an_ask_that_waits_already_is_merged_unless_it_has_a_name() -> None:
    watch = Watch()
    watch.save()
    for number in range(3):
        watch.happen(RunRequested(SAVE, 2.0 + number, only("a")))
    assert len(watch.lane.queue.waiting) == 1
    watch.happen(RunRequested(SAVE, 6.0, only("a"), id="s.ra"))
    watch.happen(RunRequested(SAVE, 7.0, only("a"), id="s.ra"))
    watch.happen(RunRequested(SAVE, 8.0, only("b")))
    assert [asked.id for asked in watch.lane.queue.waiting] == ["s.2", "s.ra", "s.3"]


def test_a_queue_that_is_full_refuses_and_says_so() -> None:
    watch = Watch()
    watch.save()
    for number in range(WAITING_LIMIT):
        watch.happen(RunRequested(SAVE, 2.0, only(f"t{number}")))
    watch.happen(RunRequested(SAVE, 3.0, only("late")))
    assert len(watch.lane.queue.waiting) == WAITING_LIMIT
    assert watch.lane.notes.current == "a run was refused: 20 runs are already queued"
    assert watch.lane.queue.dropped == (), "it has no id that a client knows"
    watch.happen(RunRequested(SAVE, 4.0, only("late"), id="s.rlate"))
    assert [(dropped.run.id, dropped.reason) for dropped in watch.lane.queue.dropped] == [
        ("s.rlate", "refused: 20 runs are already queued")
    ]
    watch.save()
    assert watch.lane.queue.dropped == (), "reported once"


def test_a_cancel_by_name_takes_that_run_and_no_other() -> None:
    watch = Watch()
    watch.save()
    watch.happen(RunRequested(SAVE, 2.0, only("a"), id="s.ra"))
    watch.happen(RunRequested(SAVE, 3.0, only("b"), id="s.rb"))
    assert watch.happen(CancelRequested(SAVE, 4.0, run="s.ra")) == ()
    assert [asked.id for asked in watch.lane.queue.waiting] == ["s.rb"]
    assert [dropped.run.id for dropped in watch.lane.queue.dropped] == ["s.ra"]
    assert watch.happen(CancelRequested(SAVE, 5.0, run="s.ra")) == (), "idempotent"
    assert watch.lane.queue.dropped == ()
    assert watch.happen(CancelRequested(SAVE, 6.0, run=under_way(watch))) == (
        StopRun(SAVE, "s.1", StopReason.CANCELLED),
    )
    start = started(watch.end(Halted(StopReason.CANCELLED)))
    assert start is not None
    assert start.run.id == "s.rb"


def test_a_cancel_between_two_attempts_calls_off_what_was_asked_for() -> None:
    watch = Watch()
    watch.happen(RunRequested(SAVE, 1.0, only("a"), id="s.ra"))
    watch.end(ToolFailure(GONE, is_transient=True))
    assert watch.lane.runs.last is not None
    assert watch.lane.runs.last.reason == "gone; continues as run s.1"
    watch.happen(CancelRequested(SAVE, 3.0))
    assert [dropped.run.id for dropped in watch.lane.queue.dropped] == ["s.1"]
    assert watch.lane.activity == Broken(GONE, 1, GivenUp())
    assert watch.happen(TimerFired(SAVE, 99.0)) == ()


def test_a_run_that_was_cancelled_and_broke_is_not_owed() -> None:
    watch = Watch()
    watch.happen(RunRequested(SAVE, 1.0, only("a")))
    watch.happen(CancelRequested(SAVE, 2.0))
    watch.end(ToolFailure(GONE, is_transient=True))
    assert watch.lane.queue.waiting == ()


def test_runs_that_break_for_good_do_not_chase_one_another_for_ever() -> None:
    watch = Watch()
    for test in "abc":
        watch.happen(RunRequested(SAVE, 1.0, only(test)))
    starts = 0
    while started(watch.end(ToolFailure(GONE, is_transient=False))) is not None:
        starts += 1
    assert starts == 2
    assert [asked.selection for asked in watch.lane.queue.waiting] == [only("c")], (
        "the last one is owed until the next change"
    )


def test_an_ask_that_waits_is_not_held_up_by_a_red_run_of_some_tests() -> None:
    watch = Watch()
    watch.happen(RunRequested(SAVE, 1.0, only("t")))
    watch.happen(RunRequested(SAVE, 2.0, only("u")))
    red = replace(GREEN, exit_code=1, results={"t": Result("t", Outcome.FAILED, 0.1)})
    assert started(watch.end(Judged(snapshot("t1"), red))) is not None


def test_a_watcher_that_leaves_refuses_what_is_asked_for() -> None:
    watch = Watch()
    watch.save()
    watch.happen(RunRequested(SAVE, 1.5, only("b"), id="s.rb"))
    watch.happen(QuitRequested(SAVE, 2.0))
    for name in ("s.ra", "s.rb"):
        watch.happen(RunRequested(SAVE, 3.0, only("a"), id=name))
        assert [dropped.run.id for dropped in watch.lane.queue.dropped] == ([name] if name == "s.ra" else [])
    assert leave(watch.state).lanes[SAVE].queue.waiting == ()


# -- a change while the tests run ------------------------------------------------------------------

FIRST, SECOND = "a.py::first", "b.py::second"


def executing(on_change: OnChange, *finished: str) -> Watch:
    """Return a run of two tests in progress, where these have finished."""
    watch = Watch()
    watch.state = replace(watch.state, lanes={SAVE: replace(watch.lane, settings=LaneSettings(on_change))})
    watch.save("start.py")
    watch.happen(SnapshotTaken(SAVE, 1.1, "s.1", snapshot("t1")))
    watch.happen(TestsCollected(SAVE, 1.2, "s.1", frozenset()))
    watch.happen(TestsCollected(SAVE, 1.3, "s.1", frozenset({FIRST, SECOND})))
    results = tuple(Result(test, Outcome.PASSED, 0.1) for test in finished)
    watch.happen(TestsEnded(SAVE, 1.4, "s.1", results))
    return watch


@pytest.mark.parametrize(
    ("on_change", "path", "is_superseded"),
    [
        (OnChange.SMART, "code.py", True),
        (OnChange.SMART, "b.py", True),
        (OnChange.SMART, "a.py", False),
        (OnChange.SMART, "README.md", False),
        (OnChange.RESTART, "a.py", True),
        (OnChange.RESTART, "README.md", True),
    ],
)
def test_a_change_supersedes_a_run_by_the_rule_that_was_chosen(
    on_change: OnChange, path: str, is_superseded: bool
) -> None:
    watch = executing(on_change, FIRST)
    assert watch.save(path) == (CompareSource(SAVE, "s.1", frozenset({path}), snapshot("t1")),)
    effects = watch.happen(SourceCompared(SAVE, 3.0, "s.1", frozenset({path})))
    assert effects == ((StopRun(SAVE, "s.1", StopReason.SUPERSEDED),) if is_superseded else ())
    again = watch.happen(SourceCompared(SAVE, 3.0, "s.1", frozenset({path})))
    assert again == (), "reported once"


def test_a_change_waits_where_the_user_wants_that() -> None:
    watch = executing(OnChange.QUEUE)
    assert watch.save("code.py") == ()
    assert started(watch.end(green("t1"))) is not None


@pytest.mark.parametrize("on_change", [OnChange.SMART, OnChange.RESTART])
def test_a_touch_supersedes_nothing(on_change: OnChange) -> None:
    watch = executing(on_change)
    assert watch.save("code.py") != ()
    assert watch.happen(SourceCompared(SAVE, 3.0, "s.1", frozenset())) == ()
    assert watch.lane.pending.paths == {"code.py"}, "the next run finds out by itself"


def test_a_look_that_comes_too_late_is_no_matter_for_the_next_run() -> None:
    watch = executing(OnChange.RESTART)
    watch.save("code.py")
    assert started(watch.end(green("t1"))) is not None
    watch.happen(SnapshotTaken(SAVE, 4.0, "s.2", snapshot("t2")))
    watch.happen(TestsCollected(SAVE, 4.1, "s.2", frozenset({FIRST})))
    assert watch.happen(SourceCompared(SAVE, 5.0, "s.1", frozenset({"code.py"}))) == ()


def test_setup_is_not_thrown_away_for_a_change_which_is_weighed_when_the_tests_begin() -> None:
    watch = Watch()
    watch.save("start.py")
    watch.happen(SnapshotTaken(SAVE, 1.1, "s.1", snapshot("t1")))
    assert watch.save("code.py") == ()
    assert watch.happen(TestsCollected(SAVE, 3.0, "s.1", frozenset())) == (
        CompareSource(SAVE, "s.1", frozenset({"code.py"}), snapshot("t1")),
    )
    assert watch.happen(TestsCollected(SAVE, 3.1, "s.1", frozenset({FIRST}))) == (), "requested once"
    assert watch.happen(SourceCompared(SAVE, 3.2, "s.1", frozenset({"code.py"}))) == (
        StopRun(SAVE, "s.1", StopReason.SUPERSEDED),
    )


def test_while_tests_are_collected_all_of_them_are_still_to_come() -> None:
    watch = Watch()
    watch.save("start.py")
    watch.happen(SnapshotTaken(SAVE, 1.1, "s.1", snapshot("t1")))
    watch.happen(TestsCollected(SAVE, 1.2, "s.1", frozenset()))
    watch.save("code.py")
    assert watch.happen(SourceCompared(SAVE, 3.0, "s.1", frozenset({"README.md"}))) == ()
    assert watch.happen(SourceCompared(SAVE, 3.0, "s.1", frozenset({"code.py"}))) != ()


def test_a_superseded_run_changes_no_verdict_and_its_results_serve_the_order_of_the_next() -> None:
    watch = executing(OnChange.SMART, FIRST)
    red = Result(SECOND, Outcome.FAILED, 0.1, Failure("E", "no"))
    watch.happen(TestsEnded(SAVE, 1.5, "s.1", (red,)))
    start = started(watch.end(Halted(StopReason.SUPERSEDED)))
    assert start is not None
    assert start.latest_results[SECOND] == red
    assert SECOND not in start.knowledge.tests  # it has not been confirmed yet
    assert watch.lane.unjudged_results.keys() == {FIRST, SECOND}
    assert watch.lane.knowledge.verdict is Verdict.UNKNOWN
    assert watch.lane.knowledge.tests == {}
    assert watch.lane.runs.last is not None
    assert watch.lane.runs.last.state is RunState.SUPERSEDED
    assert isinstance(watch.lane.activity, Working)
    assert watch.lane.activity.changes.paths == {"start.py"}
    watch.end(green("t2"))
    assert watch.lane.unjudged_results == {}


def test_why_a_run_was_superseded_is_kept() -> None:
    watch = executing(OnChange.SMART)
    watch.save("code.py")
    watch.happen(SourceCompared(SAVE, 3.0, "s.1", frozenset({"code.py", "b", "c", "d", "e"})))
    watch.end(Halted(StopReason.SUPERSEDED))
    assert watch.lane.runs.last is not None
    assert watch.lane.runs.last.reason == "b, c, code.py and 2 more changed"


def test_a_run_that_supersedes_itself_gives_the_reason_and_is_followed_at_once() -> None:
    watch = executing(OnChange.SMART)
    assert started(watch.end(Halted(StopReason.SUPERSEDED, "tests lack what the project names"))) is not None
    assert watch.lane.runs.last is not None
    assert watch.lane.runs.last.reason == "tests lack what the project names"


def test_a_cancel_outranks_a_change() -> None:
    watch = executing(OnChange.RESTART)
    watch.happen(CancelRequested(SAVE, 2.0))
    assert watch.save("code.py") == ()
    assert watch.happen(SourceCompared(SAVE, 3.0, "s.1", frozenset({"code.py"}))) == ()


def test_a_crash_is_in_the_results_of_the_run() -> None:
    watch = executing(OnChange.SMART, FIRST)
    crash = Execution(
        None,
        frozenset({FIRST, SECOND}),
        {FIRST: Result(FIRST, Outcome.PASSED, 0.1)},
        reason="SIGSEGV",
        has_finished=False,
        current=SECOND,
    )
    watch.end(Judged(snapshot("t1"), crash))
    assert watch.lane.runs.last is not None
    assert watch.lane.runs.last.results[SECOND].outcome is Outcome.ERROR
    assert watch.lane.runs.last.reason == f"SIGSEGV, in {SECOND}"
