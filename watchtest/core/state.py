"""What the watcher knows and does, as one frozen value. Views are functions of it; only `step` makes a new one.

Whether a lane has come to rest, and what it waits for where it has not. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import assert_never

from watchtest.core.model import (
    BoxInfo,
    Lane,
    OnChange,
    Policy,
    Problem,
    Result,
    Run,
    RunState,
    Selection,
    ServiceInfo,
    Snapshot,
    StopReason,
    Verdict,
)

NO_TESTS_KNOWN: Mapping[str, KnownTest] = MappingProxyType({})
RECENT_RUNS = 30
NOTES_KEPT = 3


@dataclass(frozen=True, slots=True)
class PendingChanges:
    """Changes that no ended run has contained yet."""

    paths: frozenset[str] = frozenset()
    since: float | None = None

    def __bool__(self) -> bool:
        return bool(self.paths)

    def and_also(self, other: PendingChanges) -> PendingChanges:
        times = [since for since in (self.since, other.since) if since is not None]
        return PendingChanges(self.paths | other.paths, min(times, default=None))


# -- activities: each owns only its own data -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Starting:
    """Nothing has been asked of the lane yet."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Waiting. Held: the user cancelled a run, so its changes wait for the next save or command."""

    is_held: bool = False


@dataclass(frozen=True, slots=True)
class Syncing:
    """The box is being brought to the snapshot."""


@dataclass(frozen=True, slots=True)
class Executing:
    """The runner is at work; `promised` is empty while it still collects."""

    since: float
    promised: frozenset[str] = frozenset()
    results: Mapping[str, Result] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Working:
    run: Run
    changes: PendingChanges
    since: float
    phase: Syncing | Executing = Syncing()
    snapshot: Snapshot | None = None
    stop: StopReason | None = None
    stop_reason: str = ""
    attempt: int = 0
    """How many times in a row this lane broke before."""
    problem: Problem | None = None
    """What it broke by, until the box is there again."""
    loss: Problem | None = None
    """The box was lost under it, and it may not have noticed."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The last run failed for the tool's own reasons. No `retry_at`: given up until the next change or command."""

    problem: Problem
    attempt: int
    retry_at: float | None
    is_due: bool = False
    """The next attempt may start as soon as nothing stands against it."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The lane has ended."""


Activity = Starting | Idle | Working | Broken | Stopped


# -- knowledge -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KnownTest:
    """The last word on one test: its result, the tree and run it comes from, and since when it is red."""

    result: Result
    snapshot: str
    run: str
    red_since: float | None = None
    is_new: bool = False
    """Red now, and not red before the code became what it is now."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known of the code: a verdict always names the snapshot it is of."""

    verdict: Verdict = Verdict.UNKNOWN
    reason: str = ""
    at: float | None = None
    run: Run | None = None
    snapshot: Snapshot | None = None
    tests: Mapping[str, KnownTest] = field(default_factory=lambda: NO_TESTS_KNOWN)
    is_complete: bool = False
    """Every test was judged on this very snapshot, by one run or by several."""
    box: str = ""
    """The id of the box it was judged in: in another one it may be another verdict."""
    base: Snapshot | None = None
    """The last snapshot of which it was complete, in this box."""

    @property
    def must_run(self) -> frozenset[str]:
        """Tests that are red, or of which the last word is not about `base`."""
        base = self.base.id if self.base is not None else ""
        return frozenset(
            test for test, known in self.tests.items() if known.result.outcome.is_red or known.snapshot != base
        )

    @property
    def red(self) -> tuple[KnownTest, ...]:
        return tuple(known for known in self.tests.values() if known.result.outcome.is_red)


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """The last run that came to an end, whatever end."""

    run: Run
    state: RunState
    started_at: float
    ended_at: float
    results: Mapping[str, Result] = field(default_factory=lambda: MappingProxyType({}))
    reason: str = ""
    raw_output: str = ""
    successor: str = ""
    """The run that does what was asked of this one, which had no verdict."""


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A run that was asked for, accepted under this id, and waits for its turn."""

    id: str
    at: float
    selection: Selection | None
    is_named: bool = False
    """The asker named it, and may ask what became of it: it is not merged with another."""
    reason: str = ""
    is_audit: bool = False


@dataclass(frozen=True, slots=True)
class DroppedRun:
    """A run that was asked for and never began, and why."""

    asked: QueuedRun
    reason: str


@dataclass(frozen=True, slots=True)
class LaneNote:
    """Something that was said once, for whoever looks a little later."""

    at: float
    text: str


def requested_run_id(lane: LaneState, token: str) -> str:
    """An id for a run to be asked for; `token` makes it unique. It is never one that the lane allots itself."""
    return f"{lane.session}.r{token}"


@dataclass(frozen=True, slots=True)
class AuditSchedule:
    """When everything runs to check selections: after so many narrowed runs, after so long at rest; 0 is never."""

    runs: int = 0
    idle_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LaneState:
    lane: Lane
    policy: Policy
    """As it was configured; `effective_policy` is what counts."""
    session: str
    """Makes run ids unique across starts of the watcher."""
    activity: Activity = Starting()
    is_paused: bool = False
    override: Policy | None = None
    """A policy that was asked for by hand."""
    pending: PendingChanges = PendingChanges()
    asked: tuple[QueuedRun, ...] = ()
    """In the order in which they will run."""
    dropped: tuple[DroppedRun, ...] = ()
    """What the last event of this lane took out of `asked`, or did not let in."""
    knowledge: Knowledge = Knowledge()
    unjudged_results: Mapping[str, Result] = field(default_factory=lambda: MappingProxyType({}))
    """What unjudged runs have said since the last verdict. Serves the order of the next run; is no verdict."""
    box: BoxInfo | None = None
    services: tuple[ServiceInfo, ...] = ()
    last: FinishedRun | None = None
    recent_states: tuple[RunState, ...] = ()
    runs: int = 0
    ids: int = 0
    """How many ids were allotted, to runs that began and to runs that wait."""
    on_change: OnChange = OnChange.SMART
    audit: AuditSchedule = AuditSchedule()
    narrowed: int = 0
    """How many judged runs since the last of all tests have left some out."""
    independent: frozenset[str] = frozenset()
    """Tests that were seen red among all others of their file: they are so by themselves."""
    audit_at: float | None = None
    """When it will have rested for so long that an audit is due."""
    settle_s: float = 0.0
    """Runs start with the first write of a save; so long after that, what follows is taken for the rest of it."""
    note: str = ""
    """What the run under way is busy with."""
    notes: tuple[LaneNote, ...] = ()
    """The last things that were said beyond that, the newest last."""
    blocked_by: str = ""
    """Why the source is not to be looked at for now."""
    losses: int = 0
    """How often the box was lost in quick succession, the last time at `lost_at`."""
    lost_at: float = -math.inf
    waits_for: str = ""
    """Why the lane does not run although it could: a rebase stands, a higher lane is at work."""

    @property
    def effective_policy(self) -> Policy:
        """Those who want only failed tests to run want no more than usual once none fails."""
        if self.override is Policy.FAILED and self.policy is Policy.AFFECTED and not self.knowledge.red:
            return self.policy
        return self.override or self.policy

    @property
    def problem(self) -> Problem | None:
        own = self.activity.problem if isinstance(self.activity, Broken | Working) else None
        return own or self._failed_service

    @property
    def _failed_service(self) -> Problem | None:
        """The next run that needs it cannot go: that is worth knowing before."""
        failed = [service for service in self.services if service.state == "failed"]
        if not failed:
            return None
        name, reason = failed[0].name, failed[0].reason
        hint = f"see `watchtest logs {name}`; it is tried again when its files change, or when you ask for a run"
        return Problem("service", f"service {name} failed: {reason}", hint)


@dataclass(frozen=True, slots=True)
class State:
    """All lanes. `once`: leave after the first end of every lane."""

    lanes: Mapping[Lane, LaneState]
    once: bool = False
    is_leaving: bool = False

    @property
    def ranked(self) -> tuple[LaneState, ...]:
        """The lanes, the highest first."""
        return tuple(self.lanes[lane] for lane in Lane if lane in self.lanes)

    @property
    def top(self) -> LaneState:
        """The highest lane that is on."""
        return self.ranked[0]


@dataclass(frozen=True, slots=True)
class SettleStatus:
    """At rest: nothing more will be known of the code as it is until somebody saves or asks."""

    is_settled: bool
    waits_for: str = ""


def settle_status(lane: LaneState) -> SettleStatus:
    """By the first law, a lane that rests without pending changes has judged all that it was told of."""
    has_work = bool(lane.pending or lane.asked)
    match lane.activity:
        case Starting():
            return SettleStatus(False)
        case Working(problem=problem):
            return SettleStatus(False, problem.message if problem is not None else "")
        case Idle(is_held=is_held):
            if not has_work or (lane.effective_policy is Policy.OFF and not lane.asked):
                return SettleStatus(True)
            if lane.is_paused:
                return SettleStatus(False, "the lane is paused; `watchtest resume` lets it go on")
            return SettleStatus(is_held, lane.waits_for)
        case Broken(problem=problem, retry_at=retry_at, is_due=is_due):
            return SettleStatus(retry_at is None and not is_due, problem.message)
        case Stopped():
            return SettleStatus(True)
        case _:
            assert_never(lane.activity)
