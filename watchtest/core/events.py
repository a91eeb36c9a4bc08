"""Everything that can happen to a lane (events), and everything `step` can request in return (effects).

Event   SourceChanged · SourceCompared · SourceBlocked · TimerFired · NoteAdded
        RunRequested · CancelRequested · PauseRequested · ResumeRequested · PolicyRequested · QuitRequested
        BoxConnected · BoxLost · ServicesChanged · EnvironmentChecked · EnvironmentBuilt
        SnapshotTaken · SelectionMade · TestsCollected · TestsEnded · RunEnded
Effect  StartRun · StopRun · SetTimer · RecheckSource · CompareSource · BuildEnvironment · StopBuild · Leave
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from watchtest.core import model
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
class LaneEvent:
    """Something happened to a lane. The time, in seconds since the epoch, means that `step` needs no clock."""

    lane: model.Lane
    at: float


@dataclass(frozen=True, slots=True)
class RunEvent(LaneEvent):
    """Something happened to the run with this id."""

    run: str


@dataclass(frozen=True, slots=True)
class SourceChanged(LaneEvent):
    """The source of a lane has changed, or may have changed."""

    paths: frozenset[str]


@dataclass(frozen=True, slots=True)
class SourceCompared(RunEvent):
    """The answer to `CompareSource`: the paths whose content or mode differs from the snapshot of that run."""

    paths: frozenset[str]


@dataclass(frozen=True, slots=True)
class SourceBlocked(LaneEvent):
    """The source must not be read for now, for example during a rebase. An empty reason means that it may be again."""

    reason: str


@dataclass(frozen=True, slots=True)
class RunRequested(LaneEvent):
    """The user wants a run, even if nothing has changed. Without a selection, the policy of the lane decides."""

    selection: model.Selection | None = None
    id: str = ""
    """The id of the run, if the client needs to know it in advance (see `state.requested_run_id`)."""


@dataclass(frozen=True, slots=True)
class CancelRequested(LaneEvent):
    """The user wants to stop a run, active or queued. Without an id, the active one is meant."""

    is_kill: bool = False
    run: str = ""


@dataclass(frozen=True, slots=True)
class PauseRequested(LaneEvent):
    """The user wants the lane to start no more runs."""


@dataclass(frozen=True, slots=True)
class ResumeRequested(LaneEvent):
    """The user wants a paused lane to continue."""


@dataclass(frozen=True, slots=True)
class PolicyRequested(LaneEvent):
    """The user sets the policy of the lane until further notice; None restores the configured one."""

    policy: model.Policy | None


@dataclass(frozen=True, slots=True)
class QuitRequested(LaneEvent):
    """The user wants the watcher to stop."""


@dataclass(frozen=True, slots=True)
class TimerFired(LaneEvent):
    """The time of a `SetTimer` has come."""


# -- what a run reports while it is active ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoteAdded(LaneEvent):
    """A line to show now, such as a step of the setup."""

    text: str
    is_kept: bool = False
    """Keep it on screen after the run, like a warning."""


@dataclass(frozen=True, slots=True)
class BoxConnected(LaneEvent):
    box: model.BoxInfo


@dataclass(frozen=True, slots=True)
class BoxLost(LaneEvent):
    """The connection to the box was lost. An active run notices that by itself."""

    problem: model.Problem


@dataclass(frozen=True, slots=True)
class ServicesChanged(LaneEvent):
    """A service of the box has changed its state. `services` lists all of them."""

    services: tuple[model.ServiceInfo, ...]


@dataclass(frozen=True, slots=True)
class EnvironmentChecked(LaneEvent):
    """A run has compared the environment in its box with its tree."""

    wanted: str
    """The key of the clean environment to be built; empty if none has to be."""


@dataclass(frozen=True, slots=True)
class EnvironmentBuilt(LaneEvent):
    """The end of `BuildEnvironment`: the clean environment is ready, or there is a problem."""

    key: str
    problem: model.Problem | None = None
    is_transient: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotTaken(RunEvent):
    snapshot: model.Snapshot
    environment: str = ""
    """Identifies everything else that the verdict depends on."""


@dataclass(frozen=True, slots=True)
class SelectionMade(RunEvent):
    """The final selection of a run, made when its tree is known."""

    selection: model.Selection


@dataclass(frozen=True, slots=True)
class TestsCollected(RunEvent):
    """Tests that the run promises to report on."""

    tests: frozenset[str]


@dataclass(frozen=True, slots=True)
class TestsEnded(RunEvent):
    results: tuple[model.Result, ...]
    is_check: bool = False
    """The results come from a fresh process that repeats tests of a warm one to confirm them."""


@dataclass(frozen=True, slots=True)
class ConfirmationBegan(RunEvent):
    """The failures of a warm run are being repeated in a fresh process, which decides whether they count."""

    failures: int


Progress = SnapshotTaken | SelectionMade | TestsCollected | TestsEnded | ConfirmationBegan
"""What a run reports before its end."""


# -- how a run ends --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """The runner tested this snapshot until its end or its time limit."""

    snapshot: model.Snapshot
    execution: model.Execution
    box: str = ""
    """The id of the box that it ran in."""
    provisional: model.Provisional | None = None
    """Why that box is not a clean environment of the snapshot; None if it is one."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The snapshot is the one of the last verdict, so there was nothing to run."""

    snapshot: model.Snapshot


@dataclass(frozen=True, slots=True)
class Halted:
    """The run was stopped before it could be judged; its changes become pending again."""

    stop: model.StopReason
    because: str = ""
    """Why the run stopped itself; empty if it was told to stop."""


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """The tool failed, not the code; the changes become pending again. A transient problem is retried."""

    problem: model.Problem
    is_transient: bool
    retries_forever: bool = False
    """Retry without a limit, because the cause lies outside, like an engine that is not running."""


Ending = Judged | Unchanged | Halted | ToolFailure


@dataclass(frozen=True, slots=True)
class RunEnded(RunEvent):
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
    | EnvironmentChecked
    | EnvironmentBuilt
    | Progress
    | RunEnded
)
Post = Callable[[Event], None]


# -- effects ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartRun:
    run: model.Run
    paths: frozenset[str]
    """The paths that may have changed since the last snapshot."""
    knowledge: Knowledge = field(default_factory=Knowledge)
    """What the lane knew when the run started."""
    unjudged_results: Mapping[str, model.Result] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def latest_results(self) -> Mapping[str, model.Result]:
        """The last result of every test, judged or not; `policy.file_order` uses it."""
        return {**self.knowledge.results, **self.unjudged_results}


@dataclass(frozen=True, slots=True)
class StopRun:
    lane: model.Lane
    run: str
    stop: model.StopReason


@dataclass(frozen=True, slots=True)
class SetTimer:
    lane: model.Lane
    at: float


@dataclass(frozen=True, slots=True)
class RecheckSource:
    """Check a little later that the source of the idle lane still equals this snapshot."""

    lane: model.Lane
    snapshot: model.Snapshot


@dataclass(frozen=True, slots=True)
class CompareSource:
    """Find out which of these paths differ from the snapshot that a run tests: a touched file has not changed."""

    lane: model.Lane
    run: str
    paths: frozenset[str]
    snapshot: model.Snapshot


@dataclass(frozen=True, slots=True)
class BuildEnvironment:
    """Build the clean environment with this key behind the runs. It supersedes an earlier build of the lane."""

    lane: model.Lane
    key: str


@dataclass(frozen=True, slots=True)
class StopBuild:
    """Stop the build of the lane: its environment is no longer needed."""

    lane: model.Lane


@dataclass(frozen=True, slots=True)
class Leave:
    """End the watcher."""


Effect = StartRun | StopRun | SetTimer | RecheckSource | CompareSource | BuildEnvironment | StopBuild | Leave
Effects = tuple[Effect, ...]
