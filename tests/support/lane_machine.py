"""A lane under a random user, random edits, and a runner that finishes or breaks off; the laws of design.md hold."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from watchtest.core.events import (
    BoxConnected,
    BoxLost,
    BuildEnvironment,
    CancelRequested,
    CompareSource,
    Ending,
    EnvironmentBuilt,
    EnvironmentChecked,
    Event,
    Halted,
    Judged,
    PauseRequested,
    PolicyRequested,
    QuitRequested,
    ResumeRequested,
    RunEnded,
    RunRequested,
    SelectionMade,
    SetTimer,
    SnapshotTaken,
    SourceChanged,
    SourceCompared,
    StartRun,
    StopBuild,
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
    Provisional,
    ProvisionalCode,
    Result,
    Snapshot,
    StopReason,
    Verdict,
)
from watchtest.core.retry import RETRY_LIMIT
from watchtest.core.state import (
    AuditSchedule,
    Broken,
    BuildFailed,
    Building,
    Executing,
    Idle,
    LaneSettings,
    LaneState,
    State,
    Syncing,
    Working,
    requested_run_id,
    settle_status,
)
from watchtest.core.step import step
from watchtest.core.transitions import (
    ResultsArrived,
    RunDropped,
    RunFact,
    RunFinished,
    RunQueued,
    RunStarted,
    RunWithdrawn,
    TestsBegan,
    TestsSelected,
    TreeTaken,
    facts_of,
    unfinished,
)
from watchtest.core.verdict import covers_everything, file_of

OUTDATED = Provisional(ProvisionalCode.DEPENDENCIES, "outdated")
BY_HAND = Provisional(ProvisionalCode.BY_HAND, "changed by hand: pip install x")
TESTS = ("a.py::one", "a.py::two", "b.py::three", "b.py::four")
Truth = Mapping[str, bool]
"""What the tests of one tree would say: which exist, and whether each passes."""


def tree(truth: Truth, number: int) -> Snapshot:
    entry = Entry(EntryKind.FILE, 0o644, number, str(number))
    return Snapshot(id=f"tree-{number}", entries={"code.py": entry})


class Ledger:
    """The history as a recorder would write it: rejects what a store would reject."""

    def __init__(self) -> None:
        self.asked: set[str] = set()
        """Ids that were given to clients."""
        self.open: dict[str, str] = {}
        self.ended: set[str] = set()

    def write(self, fact: RunFact) -> None:
        run = fact.run.id
        if isinstance(fact, RunQueued):
            assert run not in self.open.keys() | self.ended, f"{run} was accepted twice"
            self.open[run] = "queued"
            return
        assert run in self.open, f"{fact} comes before its run or after its end"
        state = self.open[run]
        match fact:
            case RunStarted():
                assert state == "queued"
                self.open[run] = "syncing"
            case TreeTaken() | TestsSelected():
                assert state == "syncing"
            case TestsBegan():
                assert state == "syncing"
                self.open[run] = "running"
            case ResultsArrived():
                assert state == "running"
            case RunFinished():
                assert fact.finished.state.value not in ("queued", "syncing", "running")
                self.end(run)
            case RunWithdrawn():
                assert fact.run.is_forced or run not in self.asked, "a client waits for its end"
                self.end(run)
            case RunDropped():
                self.end(run)

    def end(self, run: str) -> None:
        del self.open[run]
        self.ended.add(run)

    def must_be_closed_by(self, state: State) -> None:
        """If the watcher left now, every accepted run would have exactly one end."""
        left = deepcopy(self)
        for run, _ in unfinished(state):
            left.end(run.id)
        assert not left.open
        assert left.ended >= left.asked


class LaneMachine(RuleBasedStateMachine):
    """The loop, the user and the box in one; only `step` ever changes the state under test."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.number = 0
        self.truth: Truth = dict.fromkeys(TESTS, True)
        self.truths: dict[str, Truth] = {"tree-0": self.truth}
        self.dependencies = "old"
        self.needs: dict[str, str] = {"tree-0": self.dependencies}
        """By tree: the environment that it needs."""
        self.box = "old"
        """The environment that the box of the lane holds. In another one than needed, every test passes."""
        self.built = ""
        """The environment that is there to move to."""
        self.building = ""
        self.is_by_hand = False
        self.mark: Provisional | None = None
        """Why the run under way is provisional."""
        self.owed: dict[str, int] = {}
        """Changes without a verdict yet, each with the number of the tree it made."""
        self.started: StartRun | None = None
        self.taken: Snapshot | None = None
        self.wake_at: float | None = None
        self.streamed: set[str] = set()
        """Tests that the run under way has reported on."""
        self.peeks: list[CompareSource] = []
        self.ledger = Ledger()
        self.state = State({Lane.SAVE: LaneState(Lane.SAVE, Policy.ALL, session="s")})

    @property
    def lane(self) -> LaneState:
        return self.state.lanes[Lane.SAVE]

    def happen(self, event: Event) -> None:
        before = self.state
        self.state, effects = step(before, event)
        for fact in facts_of(before, self.state, event):
            if isinstance(fact, RunFact):
                self.ledger.write(fact)
        for effect in effects:
            if isinstance(effect, StartRun):
                assert self.started is None, "two runs at once in one lane"
                self.started, self.taken = effect, None
                self.streamed = set()
            elif isinstance(effect, SetTimer):
                self.wake_at = effect.at
            elif isinstance(effect, BuildEnvironment):
                assert effect.key not in (self.box, self.building), "built twice"
                self.building = effect.key
            elif isinstance(effect, StopBuild):
                assert self.building
                self.building = ""
            elif isinstance(effect, CompareSource):
                self.peeks.append(effect)
            elif isinstance(effect, StopRun) and effect.stop is StopReason.SUPERSEDED:
                working = before.lanes[Lane.SAVE].activity
                assert isinstance(working, Working)
                assert isinstance(working.phase, Executing), "setup was thrown away"
                assert isinstance(event, SourceCompared)
                assert event.paths, "superseded by a touch"
                assert self.lane.settings.on_change is not OnChange.QUEUE

    def at(self) -> float:
        self.now += 0.1
        return self.now

    # -- the user --------------------------------------------------------------------------------------

    @rule(
        policy=st.sampled_from([Policy.ALL, Policy.AFFECTED, Policy.FAILED]),
        on_change=st.sampled_from(OnChange),
        audit_runs=st.integers(0, 2),
    )
    def choose_a_policy(self, policy: Policy, on_change: OnChange, audit_runs: int) -> None:
        lane = replace(self.lane, policy=policy, settings=LaneSettings(on_change, audit=AuditSchedule(runs=audit_runs)))
        self.state = replace(self.state, lanes={Lane.SAVE: lane})

    @rule(truth=st.dictionaries(st.sampled_from(TESTS), st.booleans()))
    def save(self, truth: Truth) -> None:
        self.number += 1
        self.truth = truth
        self.truths[f"tree-{self.number}"] = truth
        self.needs[f"tree-{self.number}"] = self.dependencies
        path = f"change-{self.number}"
        self.owed[path] = self.number
        self.happen(SourceChanged(Lane.SAVE, self.at(), frozenset({path})))

    @rule(dependencies=st.sampled_from(["old", "new", "newer"]))
    def edit_the_dependencies(self, dependencies: str) -> None:
        self.dependencies = dependencies
        self.save(self.truth)

    @rule()
    def change_the_box_by_hand(self) -> None:
        self.is_by_hand = True

    @precondition(lambda self: self.is_by_hand)
    @rule()
    def keep_what_was_done_by_hand(self) -> None:
        self.is_by_hand = False
        self.save(self.truth)

    @precondition(lambda self: self.building)
    @rule(problem=st.sampled_from([None, None, Problem("setup", "pip failed")]), is_transient=st.booleans())
    def finish_the_build(self, problem: Problem | None, is_transient: bool) -> None:
        key, self.building = self.building, ""
        if problem is None:
            self.built = key
        self.happen(EnvironmentBuilt(Lane.SAVE, self.at(), key, problem, is_transient))

    @rule(key=st.sampled_from(["old", "new", "newer"]))
    def finish_a_build_that_is_superseded(self, key: str) -> None:
        if key != self.building:
            before = self.lane.build
            self.happen(EnvironmentBuilt(Lane.SAVE, self.at(), key))
            assert self.lane.build == before

    @rule(steps=st.integers(1, 3))
    def go_back(self, steps: int) -> None:
        """Undo an edit, so that the content is as it was."""
        self.save(self.truths[f"tree-{max(0, self.number - steps)}"])

    @rule(
        tests=st.none() | st.sets(st.sampled_from(TESTS), min_size=1),
        is_named=st.booleans(),
        times=st.sampled_from([1, 1, 1, 1, 8, 30]),
    )
    def ask_for_a_run(self, tests: set[str] | None, is_named: bool, times: int) -> None:
        selection = None if tests is None else Only(tuple(sorted(tests)), because="asked")
        for _ in range(times):
            name = requested_run_id(self.lane, str(len(self.ledger.asked))) if is_named else ""
            self.happen(RunRequested(Lane.SAVE, self.at(), selection, name))
            if name:
                self.ledger.asked.add(name)

    @rule(kill=st.booleans())
    def cancel(self, kill: bool) -> None:
        self.happen(CancelRequested(Lane.SAVE, self.at(), kill))

    @precondition(lambda self: self.ledger.open or self.ledger.ended)
    @rule(kill=st.booleans(), which=st.integers(0, 1000))
    def cancel_one(self, kill: bool, which: int) -> None:
        ids = sorted(self.ledger.open) + sorted(self.ledger.ended)[-3:]
        run = ids[which % len(ids)]
        self.happen(CancelRequested(Lane.SAVE, self.at(), kill, run))
        assert run not in {asked.id for asked in self.lane.queue.waiting}

    @precondition(lambda self: self.peeks)
    @rule(is_touch=st.booleans())
    def look(self, is_touch: bool) -> None:
        peek = self.peeks.pop(0)
        self.happen(SourceCompared(Lane.SAVE, self.at(), peek.run, frozenset() if is_touch else peek.paths))

    @rule(policy=st.sampled_from([None, Policy.FAILED, Policy.ALL, Policy.AFFECTED]))
    def want_another_policy(self, policy: Policy | None) -> None:
        self.happen(PolicyRequested(Lane.SAVE, self.at(), policy))

    @rule()
    def pause(self) -> None:
        self.happen(PauseRequested(Lane.SAVE, self.at()))

    @rule()
    def resume(self) -> None:
        self.happen(ResumeRequested(Lane.SAVE, self.at()))

    @precondition(lambda self: self.wake_at is not None)
    @rule()
    def wake(self) -> None:
        assert self.wake_at is not None
        self.now = max(self.now, self.wake_at)
        self.wake_at = None
        self.happen(TimerFired(Lane.SAVE, self.now))

    # -- the run ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.started is not None and self.taken is None)
    @rule()
    def take_the_snapshot(self) -> None:
        assert self.started is not None
        self.taken = tree(self.truth, self.number)
        needed = self.needs[self.taken.id]
        if self.box != needed and self.built == needed and not self.is_by_hand:
            self.box = needed
        is_outdated = self.box != needed
        self.mark = None
        if is_outdated or self.is_by_hand:
            self.mark = OUTDATED if is_outdated else BY_HAND
        self.happen(EnvironmentChecked(Lane.SAVE, self.at(), needed if is_outdated and not self.is_by_hand else ""))
        self.happen(SnapshotTaken(Lane.SAVE, self.at(), self.started.run.id, self.taken))

    def promised(self) -> frozenset[str]:
        assert self.started is not None
        assert self.taken is not None
        promised = frozenset(self.truths[self.taken.id])
        selection = self.started.run.selection
        if not isinstance(selection, Only):
            return promised
        return frozenset(test for test in promised if not {test, file_of(test)}.isdisjoint(selection.tests))

    @precondition(lambda self: self.is_open_what_to_run())
    @rule(more=st.sets(st.sampled_from(TESTS)))
    def narrow(self, more: set[str]) -> None:
        """Return a selection that knows what changed since the last fully known tree, and may include too many
        tests."""
        assert self.started is not None
        assert self.started.knowledge.base is not None
        assert self.taken is not None
        before, now = self.truths[self.started.knowledge.base.id], self.truths[self.taken.id]
        changed = {test for test in TESTS if before.get(test) != now.get(test)}
        tests = tuple(sorted(changed | more | self.started.knowledge.must_run))
        run = replace(self.started.run, selection=Only(tests, because="a change", is_proof=True))
        self.started = replace(self.started, run=run)
        self.happen(SelectionMade(Lane.SAVE, self.at(), run.id, run.selection))

    def is_open_what_to_run(self) -> bool:
        started, activity = self.started, self.lane.activity
        is_at_its_start = isinstance(activity, Working) and isinstance(activity.phase, Syncing)
        is_open = started is not None and started.run.is_narrowable and isinstance(started.run.selection, All)
        return (
            is_open
            and started is not None
            and started.knowledge.base is not None
            and started.knowledge.provisional == self.mark
            and started.knowledge.box == self.box
            and self.taken is not None
            and is_at_its_start
        )

    def seen(self) -> Truth:
        """Return what the tests say in the box as it is."""
        assert self.taken is not None
        truth = self.truths[self.taken.id]
        return truth if self.mark is None else dict.fromkeys(truth, True)

    def stream(self, tests: frozenset[str]) -> None:
        assert self.started is not None
        assert self.taken is not None
        truth = self.seen()
        results = tuple(result(test, truth[test]) for test in sorted(tests - self.streamed))
        self.streamed |= tests
        self.happen(TestsEnded(Lane.SAVE, self.at(), self.started.run.id, results))

    @precondition(lambda self: self.taken is not None)
    @rule(reported=st.sets(st.sampled_from(TESTS)), is_collected=st.booleans())
    def run_some_tests(self, reported: set[str], is_collected: bool) -> None:
        assert self.started is not None
        self.happen(TestsCollected(Lane.SAVE, self.at(), self.started.run.id, frozenset()))
        if is_collected:
            self.happen(TestsCollected(Lane.SAVE, self.at(), self.started.run.id, self.promised()))
            self.stream(self.promised() & reported)

    @precondition(lambda self: self.taken is not None)
    @rule(
        reported=st.sets(st.sampled_from(TESTS)),
        exit_code=st.sampled_from([None, 0, 1, 2, 5]),
        whole=st.booleans(),
        withdrawn=st.sampled_from(["", "stopping after 1 failures"]),
        finished=st.booleans(),
        crashed=st.none() | st.sampled_from(TESTS),
    )
    def judge(
        self,
        reported: set[str],
        exit_code: int | None,
        whole: bool,
        withdrawn: str = "",
        finished: bool = True,
        crashed: str | None = None,
    ) -> None:
        """Return the result of a runner that finishes, stops at the first failure, or breaks off with any exit code."""
        assert self.started is not None
        assert self.taken is not None
        run = self.started.run
        truth = self.seen()
        promised = self.promised()
        told = promised if whole else promised & (reported | self.streamed)
        results = {test: result(test, truth[test]) for test in told}
        if whole:
            exit_code = 5 if not promised else int(any(not truth[test] for test in promised))
        self.happen(TestsCollected(Lane.SAVE, self.at(), run.id, promised))
        self.stream(told)
        snapshot = self.taken
        covered = covers_everything(run.selection)
        carried = self.lane.activity.changes if isinstance(self.lane.activity, Working) else None
        assert carried is not None
        execution = Execution(exit_code, promised, results, withdrawn=withdrawn, has_finished=whole or finished)
        if not finished and not whole:
            # A runner cannot have promised what it had not collected when it broke off.
            execution = replace(execution, promised=told, has_collected=False)
        if crashed in promised - told:
            execution = replace(execution, promised=promised, has_finished=False, current=crashed, has_collected=True)
        if whole and not promised and covered and isinstance(run.selection, Only):
            execution = replace(execution, is_needless=True)
        self.end(Judged(snapshot, execution, self.box, self.mark))
        # This also holds if an earlier run had already judged all tests of this tree.
        if covered or self.lane.knowledge.is_complete:
            self.owed = {path: made for path, made in self.owed.items() if path not in carried.paths}

    @precondition(lambda self: self.taken is not None)
    @rule()
    def find_it_unchanged(self) -> None:
        assert self.started is not None
        known = self.started.knowledge.last_judged_tree
        if known is None or self.started.run.is_forced or self.taken is None or known.entries != self.taken.entries:
            return
        if self.started.knowledge.box != self.box or self.started.knowledge.provisional not in (None, self.mark):
            return
        carried = self.lane.activity.changes if isinstance(self.lane.activity, Working) else None
        assert carried is not None
        self.end(Unchanged(self.taken))
        self.owed = {path: made for path, made in self.owed.items() if path not in carried.paths}

    @precondition(lambda self: self.started is not None)
    @rule(stop=st.sampled_from([StopReason.CANCELLED, StopReason.KILLED, StopReason.SUPERSEDED]))
    def halt(self, stop: StopReason) -> None:
        self.end(Halted(stop))

    @precondition(lambda self: self.started is not None)
    @rule(is_transient=st.booleans())
    def break_down(self, is_transient: bool) -> None:
        self.end(ToolFailure(Problem("engine", "gone"), is_transient))

    @rule()
    def lose_the_box(self) -> None:
        was_at_rest = isinstance(self.lane.activity, Idle)
        self.happen(BoxLost(Lane.SAVE, self.at(), Problem("channel", "lost")))
        assert not was_at_rest or self.lane.problem, "at rest, nothing else would report it"

    @precondition(lambda self: self.started is not None)
    @rule()
    def find_the_box(self) -> None:
        self.happen(BoxConnected(Lane.SAVE, self.at(), BoxInfo("docker", "1a2b", "python", "running", 0.0)))
        assert self.lane.problem is None or isinstance(self.lane.build, BuildFailed)

    def end(self, ending: Ending) -> None:
        assert self.started is not None
        run, self.started, self.taken = self.started.run, None, None
        self.happen(RunEnded(Lane.SAVE, self.at(), run.id, ending))

    # -- the laws --------------------------------------------------------------------------------------

    @invariant()
    def no_change_is_lost(self) -> None:
        activity = self.lane.activity
        held = self.lane.pending.paths | (activity.changes.paths if isinstance(activity, Working) else frozenset())
        assert self.owed.keys() <= held

    @invariant()
    def no_green_is_stale(self) -> None:
        knowledge = self.lane.knowledge
        if knowledge.verdict is not Verdict.PASSED or knowledge.provisional is not None:
            return
        assert knowledge.snapshot is not None
        truth = self.truths[knowledge.snapshot.id]
        assert truth, "green without a test"
        assert all(truth.values()), f"green on {knowledge.snapshot.id}, where {truth}"
        assert knowledge.tests.keys() <= truth.keys()

    @invariant()
    def an_idle_lane_has_a_verdict(self) -> None:
        """When idle with nothing pending, after a run was judged, there is a verdict."""
        lane = self.lane
        is_at_rest = lane.activity == Idle() and not lane.is_paused and not lane.pending and not lane.queue.waiting
        if is_at_rest and lane.knowledge.run is not None:
            assert lane.knowledge.verdict is not Verdict.UNKNOWN

    @invariant()
    def a_verdict_from_an_outdated_box_waits_for_a_clean_environment(self) -> None:
        lane = self.lane
        is_outdated = lane.knowledge.provisional == OUTDATED
        if is_outdated and not self.is_by_hand and settle_status(lane).is_settled and lane.activity == Idle():
            assert isinstance(lane.build, BuildFailed), "nothing would ever make the verdict final"

    @invariant()
    def a_build_is_under_way_exactly_when_the_state_says_so(self) -> None:
        build = self.lane.build
        assert (build.key if isinstance(build, Building) else "") == self.building

    @invariant()
    def a_run_is_under_way_exactly_when_the_state_says_so(self) -> None:
        assert isinstance(self.lane.activity, Working) == (self.started is not None)

    @invariant()
    def retries_stay_within_their_limit(self) -> None:
        if isinstance(self.lane.activity, Broken):
            assert self.lane.activity.attempt <= RETRY_LIMIT

    @invariant()
    def every_run_that_was_accepted_waits_or_runs_or_has_its_one_end(self) -> None:
        under_way = {self.started.run.id} if self.started is not None else set()
        assert self.ledger.open.keys() == under_way | {asked.id for asked in self.lane.queue.waiting}
        assert self.ledger.asked <= self.ledger.open.keys() | self.ledger.ended

    def teardown(self) -> None:
        """In any case: resume, save once more, let every run and build finish, and the verdict is right."""
        self.ledger.must_be_closed_by(self.state)
        self.happen(ResumeRequested(Lane.SAVE, self.at()))
        self.is_by_hand = False
        self.save({"a.py::one": True, "b.py::three": False})
        if isinstance(self.lane.build, BuildFailed):
            self.happen(RunRequested(Lane.SAVE, self.at()))
        for _ in range(100):
            if self.started is None and isinstance(self.lane.activity, Broken) and self.wake_at is not None:
                self.wake()  # a box that was lost during a run is restored
            if self.started is None and self.building:
                self.finish_the_build(None, False)
            if self.started is None:
                break
            if self.taken is None:
                self.take_the_snapshot()
            self.judge(set(), None, True)
        assert isinstance(self.lane.activity, Idle)
        assert self.lane.knowledge.verdict is Verdict.FAILED
        self.save({"a.py::one": True, "b.py::three": True})
        for _ in range(10):
            if self.started is None:
                break
            self.take_the_snapshot()
            self.judge(set(), None, True)
        assert self.lane.knowledge.verdict is Verdict.PASSED
        assert self.lane.knowledge.snapshot is not None
        assert self.lane.knowledge.snapshot.id == f"tree-{self.number}"
        assert not self.lane.pending
        assert not self.lane.queue.waiting
        self.happen(QuitRequested(Lane.SAVE, self.at()))
        self.ledger.asked.add("late")
        self.happen(RunRequested(Lane.SAVE, self.at(), None, "late"))
        self.ledger.must_be_closed_by(self.state)


def result(test: str, passes: bool) -> Result:
    if passes:
        return Result(test, Outcome.PASSED, 0.1)
    return Result(test, Outcome.FAILED, 0.1, Failure("AssertionError", "no"))
