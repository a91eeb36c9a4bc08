"""The values that all of watchtest speaks about: lanes, snapshots, tests, runs. Frozen, and free of I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

EngineName = Literal["auto", "docker", "podman", "local"]
"""What runs the box, as the user names it in the settings."""


class Lane(StrEnum):
    """One trigger with its own source, box and state. Lanes are declared in order of priority."""

    SAVE = "save"
    STAGE = "stage"
    COMMIT = "commit"


class Trigger(StrEnum):
    """What started a run."""

    SAVE = "save"
    STAGE = "stage"
    COMMIT = "commit"
    MANUAL = "manual"


class Policy(StrEnum):
    """Which tests a trigger runs."""

    OFF = "off"
    AFFECTED = "affected"
    FAILED = "failed"
    ALL = "all"


class OnChange(StrEnum):
    """What happens to a run when its source changes while the tests run."""

    SMART = "smart"
    """The run is superseded if the change affects tests that have not finished."""
    RESTART = "restart"
    """The run is superseded."""
    QUEUE = "queue"
    """The run continues; the change is tested after it."""


class EntryKind(StrEnum):
    """The type of a path in a snapshot. Only empty folders are entries of their own."""

    FILE = "file"
    SYMLINK = "symlink"
    FOLDER = "folder"


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a tree. `digest` is git's blob id of the content; for a symlink, of its target."""

    kind: EntryKind
    mode: int
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class ExcludedPath:
    """A path of the source that cannot be part of the snapshot, and the reason."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A source at one moment. `id` is the git tree id of exactly these entries."""

    id: str
    entries: Mapping[str, Entry]
    excluded: tuple[ExcludedPath, ...] = ()
    head: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    repository: Mapping[str, Entry] = field(default_factory=lambda: MappingProxyType({}))
    """What the box gets of the git repository, besides the entries."""


@dataclass(frozen=True, slots=True)
class Delta:
    """The difference between two trees: `write` holds new and changed paths, `remove` the deleted ones."""

    write: Mapping[str, Entry]
    remove: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.write or self.remove)

    @property
    def paths(self) -> frozenset[str]:
        return frozenset((*self.write, *self.remove))


def difference(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> Delta:
    """Return the delta from `old` to `new`."""
    # Unchanged entries are usually the same objects, and comparing identities is much faster.
    write = {path: entry for path, entry in new.items() if (before := old.get(path)) is not entry and before != entry}
    return Delta(write, tuple(sorted(old.keys() - new.keys())))


# -- tests and their results -----------------------------------------------------------------------


class Outcome(StrEnum):
    """The outcome of one test."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    XPASSED = "xpassed"

    @property
    def is_red(self) -> bool:
        return self in (Outcome.FAILED, Outcome.ERROR)


@dataclass(frozen=True, slots=True)
class Location:
    """A line of a file, counted from 1. `file` is a POSIX path relative to the workspace if it lies inside it."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a test is red. `where` is the deepest frame in the test's own file, `crash` the deepest in the workspace."""

    kind: str
    message: str
    where: Location | None = None
    column: int | None = None
    source_line: str | None = None
    crash: Location | None = None
    text: str = ""
    output: str = ""
    function: str = ""
    """The function that `crash` lies in, if it is known."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one test in one run. A red outcome always has a failure."""

    test: str
    outcome: Outcome
    duration_s: float
    failure: Failure | None = None
    reruns: int = 0
    """How often the runner itself repeated the failing test before it reported this result."""


# -- selections ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class All:
    """Every test of the workspace."""

    because: str


@dataclass(frozen=True, slots=True)
class Only:
    """These tests and no others. If it is a proof, the change cannot affect the tests that are left out."""

    tests: tuple[str, ...]
    """Test ids; the id of a file stands for all tests in it."""
    because: str
    is_proof: bool = False
    first: tuple[str, ...] = ()
    """The first wave: the tests that are most likely to be affected."""
    reasons: tuple[str, ...] = ()
    """The reasons that `because` has no room for, one line each."""
    collects_all: bool = False
    """Collect from every file, because files that had no tests before may have some now."""
    whole: tuple[str, ...] = ()
    """Names of runners that run all of their tests, including unknown ones; `tests` lists the known ones."""


Selection = All | Only


# -- runs ------------------------------------------------------------------------------------------


class RunState(StrEnum):
    """Every state a run can be in. The first three are states of an active run; the others are final."""

    QUEUED = "queued"
    SYNCING = "syncing"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    NO_TESTS = "no_tests"
    CANCELLED = "cancelled"
    KILLED = "killed"
    TIMED_OUT = "timed_out"
    SUPERSEDED = "superseded"
    BROKEN = "broken"

    @property
    def is_final(self) -> bool:
        return self not in (RunState.QUEUED, RunState.SYNCING, RunState.RUNNING)


class Verdict(StrEnum):
    """What is known about the code of one snapshot."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    NO_TESTS = "no_tests"
    UNKNOWN = "unknown"

    @property
    def is_red(self) -> bool:
        return self in (Verdict.FAILED, Verdict.ERROR)


@dataclass(frozen=True, slots=True)
class Run:
    """A run that `step` has decided on: its lane, its trigger and its selection."""

    id: str
    lane: Lane
    trigger: Trigger
    selection: Selection
    is_forced: bool = False
    """A forced run executes tests even if the tree has not changed since the last verdict."""
    is_narrowable: bool = False
    """The selection may be narrowed to fewer tests once the tree is known."""
    is_audit: bool = False
    """An audit checks earlier selections in the background, and any change ends it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What prevents a verdict: a stable code for programs, a one-line message, and a hint what to do."""

    code: str
    message: str
    hint: str = ""


class ProvisionalCode(StrEnum):
    """How the box of a verdict differs from a clean environment of its tree."""

    DEPENDENCIES = "dependencies"
    """It was set up for other dependency files."""
    BY_HAND = "by_hand"
    """The user has changed it."""

    @property
    def ending(self) -> str:
        """How the name of such an environment ends: its verdicts say nothing about the clean one."""
        return {"dependencies": "outdated", "by_hand": "by hand"}[self.value]


@dataclass(frozen=True, slots=True)
class Provisional:
    """Why a verdict is provisional: its tests ran in a box that is not a clean environment of the tree."""

    code: ProvisionalCode
    message: str
    hint: str = ""


class StopReason(StrEnum):
    """Why a run was stopped before it finished."""

    CANCELLED = "cancelled"
    KILLED = "killed"
    SUPERSEDED = "superseded"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True)
class Execution:
    """Everything that a runner reported, before `verdict.judge` has checked it."""

    exit_code: int | None
    """None if a signal ended the runner, or if its end was not observed."""
    promised: frozenset[str]
    results: Mapping[str, Result]
    collection_errors: tuple[Result, ...] = ()
    stopped: StopReason | None = None
    reason: str = ""
    """Why it ended, in one line, if the exit code does not tell (signal, time limit, out of memory)."""
    raw_output: str = ""
    duration_s: float = 0.0
    withdrawn: str = ""
    """Why the runner itself skipped tests that it had promised (`-x`, `--maxfail`)."""
    has_collected: bool = True
    """The collection was complete: a test that is not promised does not exist."""
    collects_first: bool = True
    """All tests are known before the first one runs. Other tools discover tests while they run, or at the end."""
    has_finished: bool = True
    """The runner reported that it was done; it did not just stop."""
    current: str = ""
    """The test that was running when the process ended."""
    stacks: str = ""
    """The stacks of all threads of a process that hung."""
    runner: str = ""
    """The name of the runner, if several runners test one workspace."""
    is_needless: bool = False
    """There was nothing to run, because no test can be affected."""
    by_chance: tuple[str, ...] = ()
    """Tests that failed first and passed when the same run was repeated."""
    has_lost_box: bool = False
    """A test has ended or stopped the box itself, so the next run needs another one."""
    parts: tuple[Execution, ...] = ()
    """The executions of the single runners, if this is a merged one; each of them is judged by itself."""


@dataclass(frozen=True, slots=True)
class BoxInfo:
    """The box and its present state."""

    engine: str
    id: str
    image: str
    state: str
    since: float
    restarts: int = 0
    python: str = ""
    isolation: str = ""
    """Describes what it does not isolate; empty for a container."""
    notes: tuple[str, ...] = ()
    origin: str = ""
    """The content id of the image that it was created from."""
    is_new: bool = False
    """Whether it was created just now, without the content of an earlier box."""


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """A service of the box with its last reported state: starting, ready, backoff, failed or stopped."""

    name: str
    state: str
    since: float
    restarts: int = 0
    reason: str = ""
    """Why it failed, or is waiting for a restart."""
