"""Everything that can happen to a lane (events), and everything `step` can request in return (effects).

    Event   SourceChanged · SourceCompared · SourceBlocked · TimerFired · NoteAdded
            RunRequested · CancelRequested · PauseRequested · ResumeRequested · PolicyRequested · QuitRequested
            BoxConnected · BoxLost · ServicesChanged
            SnapshotTaken · SelectionMade · TestsCollected · TestsEnded · RunEnded
    Effect  StartRun · StopRun · SetTimer · RecheckSource · CompareSource · Leave

Each event has a time (`at`, in seconds since the epoch), so that `step` needs no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from watchtest.core.model import (
    BoxInfo,
    Execution,
    Lane,
    Policy,
    Problem,
    Result,
    Run,
    Selection,
    ServiceInfo,
    Snapshot,
    StopReason,
)
from watchtest.core.state import Knowledge
from watchtest.core.text import names

EVERYTHING = "*"
"""Used in place of a path when anything may have changed: at the start, after an overflow or a sleep."""


def describe_changes(paths: Collection[str]) -> str:
    """Return a phrase like `a.py, b.py, c.py and 2 more changed`."""
    if EVERYTHING in paths:
        return "anything may have changed"
    return f"{names(paths)} changed"


@dataclass(frozen=True, slots=True)
class SourceChanged:
    """The source of a lane has changed, or may have changed."""

    lane: Lane
    at: float
    paths: frozenset[str]


@dataclass(frozen=True, slots=True)
class SourceCompared:
    """The answer to `CompareSource`: the paths whose content or mode differs from the snapshot of that run."""

    lane: Lane
    at: float
    run: str
    paths: frozenset[str]


@dataclass(frozen=True, slots=True)
class SourceBlocked:
    """The source must not be read for now, for example during a rebase. An empty reason means that it may be again."""

    lane: Lane
    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class RunRequested:
    """The user wants a run, even if nothing has changed. Without a selection, the policy of the lane decides."""

    lane: Lane
    at: float
    selection: Selection | None = None
    id: str = ""
    """The id of the run, if the client needs to know it in advance (see `state.requested_run_id`)."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The user wants to stop a run, active or queued. Without an id, the active one is meant."""

    lane: Lane
    at: float
    is_kill: bool = False
    run: str = ""


@dataclass(frozen=True, slots=True)
class PauseRequested:
    lane: Lane
    at: float


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    lane: Lane
    at: float


@dataclass(frozen=True, slots=True)
class PolicyRequested:
    """The user sets the policy of the lane until further notice; None restores the configured one."""

    lane: Lane
    at: float
    policy: Policy | None


@dataclass(frozen=True, slots=True)
class QuitRequested:
    lane: Lane
    at: float


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time of a `SetTimer` has come."""

    lane: Lane
    at: float


# -- what a run reports while it is active ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoteAdded:
    """A line to show now, such as a step of the setup."""

    lane: Lane
    at: float
    text: str
    is_kept: bool = False
    """Keep it on screen after the run, like a warning."""


@dataclass(frozen=True, slots=True)
class BoxConnected:
    lane: Lane
    at: float
    box: BoxInfo


@dataclass(frozen=True, slots=True)
class BoxLost:
    """The connection to the box was lost. An active run notices that by itself."""

    lane: Lane
    at: float
    problem: Problem


@dataclass(frozen=True, slots=True)
class ServicesChanged:
    """A service of the box has changed its state. `services` lists all of them."""

    lane: Lane
    at: float
    services: tuple[ServiceInfo, ...]


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    lane: Lane
    at: float
    run: str
    snapshot: Snapshot
    environment: str = ""
    """Identifies everything else that the verdict depends on."""


@dataclass(frozen=True, slots=True)
class SelectionMade:
    """The final selection of a run, made when its tree is known."""

    lane: Lane
    at: float
    run: str
    selection: Selection


@dataclass(frozen=True, slots=True)
class TestsCollected:
    """Tests that the run promises to report on."""

    lane: Lane
    at: float
    run: str
    tests: frozenset[str]


@dataclass(frozen=True, slots=True)
class TestsEnded:
    lane: Lane
    at: float
    run: str
    results: tuple[Result, ...]
    is_check: bool = False
    """The results come from a fresh process that repeats tests of a warm one to confirm them."""


# -- how a run ends --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """The runner tested this snapshot until its end or its time limit."""

    snapshot: Snapshot
    execution: Execution
    box: str = ""
    """The id of the box that it ran in."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The snapshot is the one of the last verdict, so there was nothing to run."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Halted:
    """The run was stopped before it could be judged; its changes become pending again."""

    stop: StopReason


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """The tool failed, not the code; the changes become pending again. A transient problem is retried."""

    problem: Problem
    is_transient: bool
    retries_forever: bool = False
    """Retry without a limit, because the cause lies outside, like an engine that is not running."""


Ending = Judged | Unchanged | Halted | ToolFailure


@dataclass(frozen=True, slots=True)
class RunEnded:
    lane: Lane
    at: float
    run: str
    ending: Ending


Event = (
    SourceChanged
    | SourceCompared
    | SourceBlocked
    | RunRequested
    | CancelRequested
    | PauseRequested
    | ResumeRequested
    | PolicyRequested
    | QuitRequested
    | TimerFired
    | NoteAdded
    | BoxConnected
    | BoxLost
    | ServicesChanged
    | SnapshotTaken
    | SelectionMade
    | TestsCollected
    | TestsEnded
    | RunEnded
)
Post = Callable[[Event], None]


# -- effects ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartRun:
    run: Run
    paths: frozenset[str]
    """The paths that may have changed since the last snapshot."""
    knowledge: Knowledge = field(default_factory=Knowledge)
    """What the lane knew when the run started."""
    unjudged_results: Mapping[str, Result] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def latest_results(self) -> Mapping[str, Result]:
        """The last result of every test, judged or not; `policy.file_order` uses it."""
        return {**self.knowledge.results, **self.unjudged_results}


@dataclass(frozen=True, slots=True)
class StopRun:
    lane: Lane
    run: str
    stop: StopReason


@dataclass(frozen=True, slots=True)
class SetTimer:
    lane: Lane
    at: float


@dataclass(frozen=True, slots=True)
class RecheckSource:
    """Check a little later that the source of the idle lane still equals this snapshot."""

    lane: Lane
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class CompareSource:
    """Find out which of these paths differ from the snapshot that a run tests: a touched file has not changed."""

    lane: Lane
    run: str
    paths: frozenset[str]
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Leave:
    """End the watcher."""


Effect = StartRun | StopRun | SetTimer | RecheckSource | CompareSource | Leave
Effects = tuple[Effect, ...]
