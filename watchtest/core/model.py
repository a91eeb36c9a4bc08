"""The nouns of watchtest as frozen values. Knows nothing of files, boxes or screens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

EngineName = Literal["auto", "docker", "podman", "local"]
"""What makes a box, as the user names it."""


class Lane(StrEnum):
    """One trigger with its source, its box and its own state; the order is their rank."""

    SAVE = "save"
    STAGE = "stage"
    COMMIT = "commit"


class Trigger(StrEnum):
    """What began a run."""

    SAVE = "save"
    STAGE = "stage"
    COMMIT = "commit"
    MANUAL = "manual"


class Policy(StrEnum):
    """How much a trigger runs."""

    OFF = "off"
    AFFECTED = "affected"
    FAILED = "failed"
    ALL = "all"


class OnChange(StrEnum):
    """What becomes of a run when its source changes while the tests run."""

    SMART = "smart"
    """It is superseded if the change reaches tests that have not finished."""
    RESTART = "restart"
    """It is superseded."""
    QUEUE = "queue"
    """It goes on; the change runs after it."""


class EntryKind(StrEnum):
    """What a path of a snapshot is. A folder is an entry of its own only while it is empty."""

    FILE = "file"
    SYMLINK = "symlink"
    FOLDER = "folder"


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a tree. `digest` is git's blob id of the content (of the target, for a symlink)."""

    kind: EntryKind
    mode: int
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class ExcludedPath:
    """A path that is in the source and cannot be in the snapshot, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A source at one instant. `id` is the git tree id of exactly these entries."""

    id: str
    entries: Mapping[str, Entry]
    excluded: tuple[ExcludedPath, ...] = ()
    head: str | None = None
    branch: str | None = None
    dirty: bool | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """What turns one tree into another: `write` holds new and changed paths, `remove` what is gone."""

    write: Mapping[str, Entry]
    remove: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.write or self.remove)


def difference(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> Delta:
    """The delta from `old` to `new`. Entries of unchanged paths are mostly the same objects: that is asked first."""
    write = {path: entry for path, entry in new.items() if (before := old.get(path)) is not entry and before != entry}
    return Delta(write, tuple(sorted(old.keys() - new.keys())))


# -- tests and what became of them -----------------------------------------------------------------


class Outcome(StrEnum):
    """What became of one test."""

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
    """A line of a file; `file` is relative to the workspace and POSIX where it lies inside it. Lines are 1-based."""

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
    """The function that `crash` lies in, where it is known."""


@dataclass(frozen=True, slots=True)
class Result:
    """One test as one run saw it. A red outcome always carries its failure."""

    test: str
    outcome: Outcome
    duration_s: float
    failure: Failure | None = None
    reruns: int = 0
    """How often the runner itself had repeated it, because it failed, before it said this."""


# -- selections ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class All:
    """Every test of the workspace."""

    because: str


@dataclass(frozen=True, slots=True)
class Only:
    """These tests and no others. A proof: the change cannot affect the tests that are left out."""

    tests: tuple[str, ...]
    """Ids of tests; one of a file stands for all that are in it."""
    because: str
    is_proof: bool = False
    first: tuple[str, ...] = ()
    """The first wave: those of them that are most likely to have something to say."""
    reasons: tuple[str, ...] = ()
    """All that `because` has no room for, a line each."""
    collects_all: bool = False
    """Every file is looked at for them: there may be tests now where none were before."""
    whole: tuple[str, ...] = ()
    """Names of runners that run all of their tests, those that nobody knows of yet, too; the known ones are listed."""


Selection = All | Only


# -- runs ------------------------------------------------------------------------------------------


class RunState(StrEnum):
    """Every state a run can be in; the first three are on the way, the others are ends."""

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


class Verdict(StrEnum):
    """What is known of the code of one snapshot."""

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
    """One execution that was decided on: which lane, what began it, what it shall run."""

    id: str
    lane: Lane
    trigger: Trigger
    selection: Selection
    is_forced: bool = False
    """A forced run goes even when the tree has not changed since the last verdict."""
    is_narrowable: bool = False
    """Once its tree is known, it may turn out that fewer tests will do."""
    is_audit: bool = False
    """It checks what others have left out: nobody waits for it, and any change ends it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that stands between the user and a verdict: a stable word, one line, and what to do."""

    code: str
    message: str
    hint: str = ""


class StopReason(StrEnum):
    """Why a run was brought to an end before its own."""

    CANCELLED = "cancelled"
    KILLED = "killed"
    SUPERSEDED = "superseded"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True)
class Execution:
    """What the runner said when it ended, all of it, believed by nobody yet."""

    exit_code: int | None
    """None: it was ended by a signal or its end was not seen."""
    promised: frozenset[str]
    results: Mapping[str, Result]
    collection_errors: tuple[Result, ...] = ()
    stopped: StopReason | None = None
    reason: str = ""
    """In one line why it ended as it did, where the exit code does not say (signal, limit, out of memory)."""
    raw_output: str = ""
    duration_s: float = 0.0
    withdrawn: str = ""
    """Why the runner itself left tests out that it had promised (`-x`, `--maxfail`), in its words."""
    has_collected: bool = True
    """The collection came to its end: what is not promised is not there."""
    collects_first: bool = True
    """Its tests are known before the first of them runs; other tools learn of them as they run, or at the end."""
    has_finished: bool = True
    """The runner said that it was through, and did not just stop."""
    current: str = ""
    """The test that had begun and not ended when the process was gone."""
    stacks: str = ""
    """Where the threads of a process that hung were, in its own words."""
    runner: str = ""
    """Who says so, by name; needed where several runners test one workspace."""
    is_needless: bool = False
    """There was nothing to run: no test can be affected."""
    by_chance: tuple[str, ...] = ()
    """Tests that failed first, and passed when the very same run was repeated."""
    parts: tuple[Execution, ...] = ()
    """What each runner said, where this is all of them in one; each is judged by itself."""


@dataclass(frozen=True, slots=True)
class BoxInfo:
    """The box as it stands."""

    engine: str
    id: str
    image: str
    state: str
    since: float
    restarts: int = 0
    python: str = ""
    isolation: str = ""
    """What it does not isolate, in words; empty for a container."""
    notes: tuple[str, ...] = field(default=())
    origin: str = ""
    """What it grew from, by its content."""


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """A service of the box as its steward last told: starting, ready, backoff, failed or stopped."""

    name: str
    state: str
    since: float
    restarts: int = 0
    reason: str = ""
    """Why it is in backoff, or failed."""
