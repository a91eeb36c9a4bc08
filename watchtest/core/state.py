"""What the watcher knows and does, as one frozen value. Views are functions of it; only `step` makes a new one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import assert_never

from watchtest.core import model

NO_TESTS_KNOWN: Mapping[str, KnownTest] = MappingProxyType({})
NO_RESULTS: Mapping[str, model.Result] = MappingProxyType({})
RECENT_RUNS = 30
NOTES_KEPT = 3


@dataclass(frozen=True, slots=True)
class PendingChanges:
    """Changes that no finished run has tested yet."""

    paths: frozenset[str] = frozenset()
    since: float | None = None

    def __bool__(self) -> bool:
        return bool(self.paths)

    def __or__(self, other: PendingChanges) -> PendingChanges:
        times = [since for since in (self.since, other.since) if since is not None]
        return PendingChanges(self.paths | other.paths, min(times, default=None))


# -- activities: each holds only its own data ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Starting:
    """The lane has received no change and no request yet."""


@dataclass(frozen=True, slots=True)
class Idle:
    """The lane is waiting. It is held after the user cancelled a run: its changes wait for the next save or request."""

    is_held: bool = False


@dataclass(frozen=True, slots=True)
class Syncing:
    """The box is being brought to the snapshot."""


@dataclass(frozen=True, slots=True)
class Executing:
    """The runner is running; `promised` is empty while it collects."""

    since: float
    promised: frozenset[str] = frozenset()
    results: Mapping[str, model.Result] = field(default_factory=lambda: NO_RESULTS)
    red: frozenset[str] = frozenset()
    """The tests in `results` that are red."""
    confirming: int = 0
    """How many failures are being repeated in a fresh process, which decides whether they count."""


@dataclass(frozen=True, slots=True)
class StopRequest:
    """The active run has been told to stop."""

    reason: model.StopReason
    because: str


@dataclass(frozen=True, slots=True)
class Working:
    """The lane has an active run."""

    run: model.Run
    changes: PendingChanges
    """The changes that the run tests. They become pending again if it reaches no verdict."""
    since: float
    phase: Syncing | Executing = Syncing()
    snapshot: model.Snapshot | None = None
    stop: StopRequest | None = None
    attempt: int = 0
    """How many attempts in a row have failed before this one."""
    problem: model.Problem | None = None
    """Why the last attempt failed; None once the box is connected again."""
    loss: model.Problem | None = None
    """The box was lost during the run, which may not have noticed."""

    @property
    def results(self) -> Mapping[str, model.Result]:
        return self.phase.results if isinstance(self.phase, Executing) else NO_RESULTS

    @property
    def stop_reason(self) -> model.StopReason | None:
        return self.stop.reason if self.stop is not None else None


@dataclass(frozen=True, slots=True)
class RetryAt:
    at: float


@dataclass(frozen=True, slots=True)
class RetryNow:
    """The next attempt starts as soon as nothing prevents it."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """There is no further attempt until the next change or request."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The last run failed because of the tool, not the code."""

    problem: model.Problem
    attempt: int
    retry: RetryAt | RetryNow | GivenUp

    @property
    def retry_at(self) -> float | None:
        return self.retry.at if isinstance(self.retry, RetryAt) else None


@dataclass(frozen=True, slots=True)
class Stopped:
    """The lane has ended."""


Activity = Starting | Idle | Working | Broken | Stopped


# -- knowledge -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KnownTest:
    """The last result of a test, the tree and the run it comes from, and how long the test has been red."""

    result: model.Result
    snapshot: str
    run: str
    red_since: float | None = None
    is_new: bool = False
    """It is red, and was not red before the latest change of the code."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known about the code. A verdict always names its snapshot."""

    verdict: model.Verdict = model.Verdict.UNKNOWN
    reason: str = ""
    at: float | None = None
    run: model.Run | None = None
    snapshot: model.Snapshot | None = None
    tests: Mapping[str, KnownTest] = field(default_factory=lambda: NO_TESTS_KNOWN)
    is_complete: bool = False
    """Every test was judged on this very snapshot, by one run or by several."""
    box: str = ""
    """The id of the box in which the tests ran; another box may give another verdict."""
    base: model.Snapshot | None = None
    """The last snapshot for which the knowledge was complete, in this box."""
    provisional: model.Provisional | None = None
    """Why the verdict is provisional; None if every result comes from a clean environment."""

    @property
    def last_judged_tree(self) -> model.Snapshot | None:
        """The snapshot of a complete verdict: testing the same tree again would tell nothing new."""
        return self.snapshot if self.is_complete else None

    @property
    def results(self) -> dict[str, model.Result]:
        return {test: known.result for test, known in self.tests.items()}

    @property
    def must_run(self) -> frozenset[str]:
        """Tests that every selection includes: they are red, or their last result is not about `base`."""
        base = self.base.id if self.base is not None else ""
        return frozenset(
            test for test, known in self.tests.items() if known.result.outcome.is_red or known.snapshot != base
        )

    @property
    def red(self) -> tuple[KnownTest, ...]:
        return tuple(known for known in self.tests.values() if known.result.outcome.is_red)


# -- runs: queued and finished ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A run that was accepted under this id and waits for its turn."""

    id: str
    at: float
    selection: model.Selection | None
    is_named: bool = False
    """The client chose the id and may ask about this run, so it is never merged with another."""
    reason: str = ""
    is_audit: bool = False


@dataclass(frozen=True, slots=True)
class DroppedRun:
    """A queued or refused run that will never start, and the reason."""

    run: QueuedRun
    reason: str


@dataclass(frozen=True, slots=True)
class RunQueue:
    waiting: tuple[QueuedRun, ...] = ()
    """In the order in which they will run."""
    dropped: tuple[DroppedRun, ...] = ()
    """The runs that the last event of this lane removed from the queue, or refused."""
    ids: int = 0
    """How many ids were allotted, to started and to queued runs."""

    def __bool__(self) -> bool:
        return bool(self.waiting)


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """The last run that ended, for whatever reason."""

    run: model.Run
    state: model.RunState
    started_at: float
    ended_at: float
    results: Mapping[str, model.Result] = field(default_factory=lambda: NO_RESULTS)
    reason: str = ""
    raw_output: str = ""
    successor: str = ""
    """The id of the run that replaces this one, which reached no verdict."""
    provisional: model.Provisional | None = None
    """Why its verdict is provisional."""


@dataclass(frozen=True, slots=True)
class RunLog:
    started: int = 0
    last: FinishedRun | None = None
    recent_states: tuple[model.RunState, ...] = ()


def requested_run_id(lane: LaneState, token: str) -> str:
    """Return an id for a run to be requested; `token` makes it unique. The lane itself never allots such an id."""
    return f"{lane.session}.r{token}"


# -- the clean environment ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Building:
    """A clean environment is being built behind the runs; `key` identifies it."""

    key: str
    since: float
    attempt: int = 0
    """How many attempts in a row have failed before this one."""


@dataclass(frozen=True, slots=True)
class BuildFailed:
    """The environment could not be built. Without `retry_at`, the next attempt needs other files or a request."""

    key: str
    problem: model.Problem
    attempt: int
    retry_at: float | None = None


Build = Building | BuildFailed


# -- the parts of a lane ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AuditSchedule:
    """When all tests run to check the selections: after this many narrowed runs or seconds of rest; 0 means never."""

    runs: int = 0
    idle_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LaneSettings:
    on_change: model.OnChange = model.OnChange.SMART
    settle_s: float = 0.0
    """A run starts with the first write of a save; changes within this time are part of the same save."""
    audit: AuditSchedule = AuditSchedule()


@dataclass(frozen=True, slots=True)
class AuditState:
    narrowed_runs: int = 0
    """How many judged runs have left tests out since the last run of all tests."""
    due_at: float | None = None
    """When the lane will have been idle for long enough."""
    confirmed_red: frozenset[str] = frozenset()
    """Tests that were also red when their whole file ran."""


@dataclass(frozen=True, slots=True)
class BoxLosses:
    """How often the box was lost in quick succession, and when it was lost last."""

    count: int = 0
    last_at: float = -math.inf


@dataclass(frozen=True, slots=True)
class LaneBox:
    info: model.BoxInfo | None = None
    services: tuple[model.ServiceInfo, ...] = ()
    losses: BoxLosses = BoxLosses()


@dataclass(frozen=True, slots=True)
class LaneNote:
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class LaneNotes:
    current: str = ""
    """What the active run is doing."""
    kept: tuple[LaneNote, ...] = ()
    """The last warnings and other notes worth keeping, the newest last."""


@dataclass(frozen=True, slots=True)
class LaneState:
    lane: model.Lane
    policy: model.Policy
    """The configured policy; `effective_policy` is the one that counts."""
    session: str
    """Makes run ids unique across starts of the watcher."""
    settings: LaneSettings = LaneSettings()
    activity: Activity = Starting()
    is_paused: bool = False
    policy_override: model.Policy | None = None
    """A policy that the user chose while watching."""
    pending: PendingChanges = PendingChanges()
    queue: RunQueue = RunQueue()
    knowledge: Knowledge = Knowledge()
    unjudged_results: Mapping[str, model.Result] = field(default_factory=lambda: NO_RESULTS)
    """Results of unjudged runs since the last verdict. They only influence the order of the next run."""
    box: LaneBox = LaneBox()
    build: Build | None = None
    """The clean environment that the lane still needs; None if its box is one, or will not be replaced."""
    runs: RunLog = RunLog()
    audit: AuditState = AuditState()
    notes: LaneNotes = LaneNotes()
    blocked_by: str = ""
    """Why the source must not be read for now."""
    waits_for: str = ""
    """Why the lane does not run although it has work: its source is blocked, or a higher lane is working."""

    @property
    def effective_policy(self) -> model.Policy:
        """The policy for the next run. "Failed tests only" has no effect while no test is known to fail."""
        if (
            self.policy_override is model.Policy.FAILED
            and self.policy is model.Policy.AFFECTED
            and not self.knowledge.red
        ):
            return self.policy
        return self.policy_override or self.policy

    @property
    def has_work(self) -> bool:
        return bool(self.queue) or (bool(self.pending) and self.effective_policy is not model.Policy.OFF)

    @property
    def provisional(self) -> model.Provisional | None:
        """Why the verdict is provisional, with a hint on what will make it final."""
        mark = self.knowledge.provisional
        if mark is None or mark.hint:
            return mark
        match self.build:
            case Building():
                hint = "a clean environment is being built; the tests run again in it"
            case BuildFailed():
                hint = "there is no clean environment yet: see the problem"
            case None:
                hint = "the tests run again in the clean environment"
            case _:
                assert_never(self.build)
        return replace(mark, hint=hint)

    @property
    def problem(self) -> model.Problem | None:
        own = self.activity.problem if isinstance(self.activity, Broken | Working) else None
        build = self.build.problem if isinstance(self.build, BuildFailed) else None
        return own or build or self._failed_service

    @property
    def _failed_service(self) -> model.Problem | None:
        """The problem of a failed service, shown before the next run needs it."""
        failed = [service for service in self.box.services if service.state == "failed"]
        if not failed:
            return None
        name, reason = failed[0].name, failed[0].reason
        hint = f"see `watchtest logs {name}`; it is restarted when its files change or when you request a run"
        return model.Problem("service", f"service {name} failed: {reason}", hint)


@dataclass(frozen=True, slots=True)
class State:
    """All lanes. `once`: leave when every lane has finished its first run."""

    lanes: Mapping[model.Lane, LaneState]
    once: bool = False
    is_leaving: bool = False

    @property
    def ranked(self) -> tuple[LaneState, ...]:
        """The lanes, the highest first."""
        return tuple(self.lanes[lane] for lane in model.Lane if lane in self.lanes)

    @property
    def top(self) -> LaneState:
        """The highest lane that is on."""
        return self.ranked[0]


@dataclass(frozen=True, slots=True)
class SettleStatus:
    """Whether a lane has settled: it will learn nothing more about the code until the next save or request."""

    is_settled: bool
    waits_for: str = ""


def settle_status(lane: LaneState) -> SettleStatus:
    """Return whether the lane has settled, and if not, what it waits for.

    No change is lost, so an idle lane without pending changes has judged every change that it was told about.
    """
    match lane.activity:
        case Idle() if isinstance(lane.build, Building):
            return SettleStatus(False, "a clean environment is being built")
        case Starting():
            return SettleStatus(False)
        case Working(problem=problem):
            return SettleStatus(False, problem.message if problem is not None else "")
        case Idle(is_held=is_held):
            if not lane.has_work:
                return SettleStatus(True)
            if lane.is_paused:
                return SettleStatus(False, "the lane is paused; `watchtest resume` continues")
            return SettleStatus(is_held, lane.waits_for)
        case Broken(problem=problem, retry=retry):
            return SettleStatus(isinstance(retry, GivenUp), problem.message)
        case Stopped():
            return SettleStatus(True)
        case _:
            assert_never(lane.activity)
