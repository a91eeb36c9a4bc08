"""Everything that can happen to a lane, and everything `step` can ask for in return.

    Event   Changed · Peeked · Hindered · RunAsked · CancelAsked · PauseAsked · ResumeAsked · PolicyAsked · QuitAsked
            Woke · Noted · BoxSeen · BoxLost · ServicesSeen
            SnapshotTaken · Selected · Collected · TestsEnded · RunEnded
    Effect  StartRun · StopRun · WakeAt · LookAgain · Peek · Leave

Each event says when it happened (`at`, seconds of the epoch), so `step` needs no clock.
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

EVERYTHING = "*"
"""In place of a path: anything may have changed (start, overflow, wake from sleep)."""
NAMES_SHOWN = 3


def describe_changes(paths: Collection[str]) -> str:
    """`a.py, b.py, c.py and 2 more changed`."""
    if EVERYTHING in paths:
        return "anything may have changed"
    names = sorted(paths)
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"{', '.join(names[:NAMES_SHOWN])}{more} changed"


@dataclass(frozen=True, slots=True)
class SourceChanged:
    """The source of a lane changed, or may have."""

    lane: Lane
    at: float
    paths: frozenset[str]


@dataclass(frozen=True, slots=True)
class SourceCompared:
    """The answer to a `CompareSource`: the paths that really differ from the snapshot of that run."""

    lane: Lane
    at: float
    run: str
    paths: frozenset[str]


@dataclass(frozen=True, slots=True)
class SourceBlocked:
    """The source is not to be looked at for now, and why (a rebase stands); with no reason: it may be again."""

    lane: Lane
    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class RunRequested:
    """The user wants a run, changed or not; without a selection the lane's policy decides."""

    lane: Lane
    at: float
    selection: Selection | None = None
    id: str = ""
    """What the run shall be called, where the asker has to know it at once (see `state.asked_id`)."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The user wants a run to end: that one, under way or waiting; without a name the one under way."""

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
    """The user wants another policy for the lane, until he wants yet another; None: the one that was configured."""

    lane: Lane
    at: float
    policy: Policy | None


@dataclass(frozen=True, slots=True)
class QuitRequested:
    lane: Lane
    at: float


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time a `SetTimer` asked for has come."""

    lane: Lane
    at: float


# -- what a run reports on its way -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoteAdded:
    """A line worth showing now, such as a step of setup."""

    lane: Lane
    at: float
    text: str
    is_kept: bool = False
    """Worth reading when the run is over, too: a warning, a file left out."""


@dataclass(frozen=True, slots=True)
class BoxConnected:
    lane: Lane
    at: float
    box: BoxInfo


@dataclass(frozen=True, slots=True)
class BoxLost:
    """The connection to the box ended without our doing. A run under way finds out by itself."""

    lane: Lane
    at: float
    problem: Problem


@dataclass(frozen=True, slots=True)
class ServicesChanged:
    """A service of the box changed its state, during a run or between runs. All of them as they are now."""

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
    """Everything but the tree that a verdict depends on, as one word."""


@dataclass(frozen=True, slots=True)
class SelectionMade:
    """What the run shall run, now that its tree is known."""

    lane: Lane
    at: float
    run: str
    selection: Selection


@dataclass(frozen=True, slots=True)
class TestsCollected:
    """The tests that this run promises to report on."""

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
    """A fresh process says it of tests that a warm one has reported already, to confirm or to refute."""


# -- how a run ends --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """The runner ran on this snapshot and came to its end, or to its time limit."""

    snapshot: Snapshot
    execution: Execution
    box: str = ""
    """The id of the box it ran in."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The snapshot is the very one the last verdict names: there is nothing to run."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Halted:
    """Ended from outside before it could be judged; its changes are given back."""

    stop: StopReason


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """The tool, not the code, failed; its changes are given back. A passing problem is tried again by itself."""

    problem: Problem
    is_transient: bool
    retries_forever: bool = False
    """Tried again without an end: it is somebody else's to mend."""


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
    """What may have changed since the last snapshot, as the watch named it."""
    known_snapshot: Snapshot | None
    """The snapshot of the last verdict: an unforced run of the same tree in the same box has nothing to do."""
    known_box: str = ""
    known: Mapping[str, Result] = field(default_factory=lambda: MappingProxyType({}))
    """The last word on every test, judged or not: what `order.file_order` goes by."""
    judged: Mapping[str, Result] = field(default_factory=lambda: MappingProxyType({}))
    """The same by judged runs alone: what `doubt.doubtful` goes by."""
    base: Snapshot | None = None
    """The last tree of which all was known, in the box `known_box`: a selection begins with what changed since."""
    must_run: frozenset[str] = frozenset()
    """Tests of which something else was heard since then, or that are red."""


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
    """The lane is at rest: make sure, in due time, that its source still is this snapshot."""

    lane: Lane
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class CompareSource:
    """See which of these paths really differ from the snapshot that a run tests: a touch is no change."""

    lane: Lane
    run: str
    paths: frozenset[str]
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Leave:
    """The watcher's work is done."""


Effect = StartRun | StopRun | SetTimer | RecheckSource | CompareSource | Leave
Effects = tuple[Effect, ...]
