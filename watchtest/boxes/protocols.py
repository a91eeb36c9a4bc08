"""The contracts between the pipeline and its boxes, independent of any engine.

A `BoxProvider` creates boxes, a `BoxSession` works with an open one, and a `JobSpec` describes a process to run in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

from watchtest.agent.frames import Frame
from watchtest.agent.rows import UntrustedRow
from watchtest.core.model import BoxInfo, Delta, Entry, Snapshot, StopReason
from watchtest.errors import BoxError, ChannelLost

if TYPE_CHECKING:
    from watchtest.boxes.docker.container_tools import DockerTools

Note = Callable[[str], None]
"""Shows the user a line of progress."""
ContentReader = Callable[[str, Entry], bytes]
"""Returns the content of a path; raises if the path no longer holds that entry."""
OnResults = Callable[[list[UntrustedRow]], None]
OnOutput = Callable[[str], None]


class ByteStream(Protocol):
    """The raw connection to an agent. All calls block; one thread calls `read` and one thread calls `write`."""

    def read(self) -> bytes:
        """Return the next bytes, or b"" at the end."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None:
        """Close the connection; a blocked `read` returns."""

    def stderr_tail(self) -> str:
        """Return the end of what the agent wrote to its stderr."""


@dataclass(slots=True)
class StopSignal:
    """Asks a run to stop: the loop sets it, and the stages of the run check it."""

    job_stops: asyncio.Queue[bool] = field(default_factory=asyncio.Queue)
    """Stop requests for the current job: True kills, False interrupts first."""
    reason: StopReason | None = None

    @property
    def is_set(self) -> bool:
        return self.reason is not None

    def set(self, reason: StopReason) -> None:
        self.reason = reason
        self.job_stops.put_nowait(reason is StopReason.KILLED)


# -- recipes ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NamedImage:
    """An image that the engine has or can pull."""

    name: str


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image built from a Dockerfile of the project. It is rebuilt exactly when `key` changes."""

    dockerfile: str
    """Path in the snapshot."""
    context: str
    """Folder in the snapshot; "" is the root."""
    key: str
    arguments: tuple[tuple[str, str], ...] = ()
    target: str = ""
    snapshot: Snapshot | None = field(default=None, compare=False, repr=False)
    read: ContentReader | None = field(default=None, compare=False, repr=False)


ImageSource = NamedImage | BuiltImage


@dataclass(frozen=True, slots=True)
class SetupChoice:
    """Something that could be part of the setup, whether it is, and the reason."""

    what: str
    is_chosen: bool
    because: str


def choice_lines(choices: Iterable[SetupChoice]) -> list[str]:
    """Describe choices for the user, one line per reason: first what was chosen, then what was left out."""
    by_reason: dict[tuple[bool, str], list[str]] = {}
    for choice in sorted(choices, key=lambda choice: not choice.is_chosen):
        by_reason.setdefault((choice.is_chosen, choice.because), []).append(choice.what)
    return [
        f"{'' if is_chosen else 'left out: '}{', '.join(what)} ({because})"
        for (is_chosen, because), what in by_reason.items()
    ]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make a box for this project: an image, and the shell commands that prepare it for tests."""

    image: ImageSource
    because: str
    """Why this image was chosen, for the user."""
    commands: tuple[str, ...]
    needs_pytest: bool
    """Install pytest if the commands did not."""
    key: str
    """Changes when the commands must run again: because they or a dependency file changed."""
    toolchain: str = ""
    """The language whose official image this is; it has the tools of no other, except Python."""
    choices: tuple[SetupChoice, ...] = field(default=(), compare=False)
    """What was chosen for the setup and what was left out, for the user."""


# -- providers -------------------------------------------------------------------------------------


class ExecMode(Enum):
    """How a command of the user runs in the box."""

    ATTACHED = auto()
    """On our own stdin, stdout and stderr, until it ends."""
    TERMINAL = auto()
    """On a terminal of its own, shown on ours; keys and window size are forwarded."""
    DETACHED = auto()
    """In the background, without input or output; the clean-up after a run does not end it."""


@dataclass(frozen=True, slots=True)
class OpenBox:
    """A running box with an agent that is about to say hello."""

    info: BoxInfo
    stream: ByteStream

    def close(self) -> None:
        self.stream.close()


@dataclass(frozen=True, slots=True)
class OpenShellBox:
    """A running box without Python, so without an agent."""

    info: BoxInfo
    tools: DockerTools

    def close(self) -> None:
        self.tools.close()


def no_python_error() -> BoxError:
    """Return the error for a request that needs Python in a box without it."""
    return BoxError(
        "no Python 3.8 or newer in the image",
        hint="set box.image to an image with Python, or box.python to its interpreter; "
        "`watchtest exec` works without Python",
    )


class BoxProvider(Protocol):
    """Creates, finds and repairs boxes of one kind. Every call blocks, for a bounded time."""

    engine: str
    variables: Mapping[str, str]
    """Environment variables for every process that we start in the box."""
    shares_host_python: bool
    """Whether the box runs the host's own Python, which must then stay unused and unchanged."""
    restores_from_image: bool
    """Whether a discarded box comes back at once from its image, without setup."""
    keeps_processes: bool
    """Whether processes in the box survive the agent: services then outlive the watcher."""

    @property
    def root(self) -> str:
        """The folder of the tree, as seen from inside."""

    @property
    def home(self) -> str:
        """The folder of the agent and the virtualenv, as seen from inside."""

    def open(self, agent: bytes, recipe: Recipe, note: Note) -> OpenBox | OpenShellBox:
        """Create, adopt, start or recreate the box. If it has Python, start an agent in it from this zip."""

    def local_images(self) -> frozenset[str]:
        """Return the names of the images from which a box can be made without a download."""

    def image_name(self, recipe: Recipe) -> str:
        """Return the name of the image behind the box; verdicts are stored under it."""

    def image_id(self, recipe: Recipe) -> str:
        """Return an id of the image's current content, or "" if it is unknown."""

    def save_environment(self, recipe: Recipe, note: Note) -> None:
        """Save the box, which holds nothing but the result of its setup, so that the next box need not repeat it."""

    def has_environment(self, recipe: Recipe, key: str) -> bool:
        """Return whether a new box would start from a saved environment of this recipe (see `Environment.key`)."""

    def renew(self, recipe: Recipe, key: str) -> None:
        """Give up the box. The next `open` returns a new one, from the saved environment if there is one."""

    def builder(self) -> BoxProvider:
        """Return the provider of a separate box, in which the next environment can be built."""

    def free(self) -> None:
        """Free what a builder's box occupies besides the environment that it saved."""

    def allow_network(self, is_allowed: bool) -> None:
        """Connect or disconnect the box if `box.network` allows the network during setup only."""

    def execute(
        self, argv: list[str], env: Mapping[str, str], path_first: tuple[str, ...], mode: ExecMode = ExecMode.ATTACHED
    ) -> int:
        """Run a command of the user in the box and return its exit code (0 once a detached one has started)."""

    def is_prepared(self) -> bool:
        """Return whether setup has completed in the box."""

    def snapshot(self, recipe: Recipe, note: Note) -> str:
        """Save the box as the origin of all boxes of this workspace and return the id of the snapshot."""

    def reset(self, with_environment: bool) -> tuple[str, ...]:
        """Delete every box of the workspace, and on request its saved environments. Describe what was deleted."""

    def inspect(self) -> BoxInfo | None:
        """Return the current state of the box without changing it."""

    def describe(self) -> tuple[str, ...]:
        """Describe the engine behind the box in lines for the user."""

    def is_stopped(self) -> bool:
        """Return whether processes of the box are stopped, as by SIGSTOP."""

    def revive(self) -> None:
        """Continue all processes of the box."""

    def kill(self) -> None:
        """Kill all processes of the box, whatever state they are in."""

    def discard(self) -> None:
        """Delete the box; the next `open` creates a new one."""

    def close(self) -> None: ...


# -- jobs ------------------------------------------------------------------------------------------

REPORT = "{watchtest-report}"
"""Placeholder in a command for the path of its report file. The content is returned in `JobResult.report`."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command in the box. With `has_rows`, each line of its stdout that is a JSON object is a row of results."""

    argv: tuple[str, ...]
    folder: str = ""
    """Its working directory, relative to the root of the tree."""
    has_rows: bool = False


@dataclass(frozen=True, slots=True)
class PytestCommand:
    """pytest with this interpreter; `tests=None` runs all of them."""

    python: str
    args: tuple[str, ...] = ()
    tests: tuple[str, ...] | None = None
    folder: str = ""
    order: tuple[str, ...] = ()
    """Test files in the order in which they should run."""
    is_warm: bool = False
    """Run in a fork of a process that has loaded pytest and its plugins, where that is safe."""
    record: bool = False
    """Record what each test touches."""
    first: tuple[str, ...] = ()
    """Tests to run before all others."""
    collects_all: bool = False
    """Collect from every file, not only from the files named in the test ids."""


@dataclass(frozen=True, slots=True)
class UnittestCommand:
    """unittest with this interpreter, from `folder`; `tests=None` runs all that discovery finds."""

    python: str
    args: tuple[str, ...] = ()
    tests: tuple[str, ...] | None = None
    folder: str = ""
    record: bool = False


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Time limits of a job."""

    run_s: float
    silence_s: float
    grace_s: float
    test_s: float = 0.0
    """For a single test, if the runner reports when a test starts; 0 is no limit."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A supervised process to run in the box."""

    command: Command | PytestCommand | UnittestCommand
    limits: JobLimits
    env: Mapping[str, str] = field(default_factory=dict)
    path_first: tuple[str, ...] = ()
    """Folders to put first on PATH."""
    requires: int | None = None
    """The generation that the tree must have; otherwise the agent refuses the job."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended, as the agent reports it. The end of a stream alone is never a result."""

    exit_code: int | None
    stopped: str | None
    reason: str
    output: str
    stacks: str
    duration_s: float
    full_disk: str = ""
    """The folder in the box that was out of space at the end."""
    current: str = ""
    """The test that was running when the process died."""
    report: bytes | None = None
    """What the command wrote to its REPORT file; None if there is no such file."""
    is_warm: bool = False
    cold_because: str = ""
    """Why the job did not run warm although it was asked to."""
    damage: str = ""
    """A file of the box itself that the tests have changed or removed."""


# -- sessions --------------------------------------------------------------------------------------


class BoxConnection(Protocol):
    """Knows whether the box still answers. A lost connection stays lost."""

    on_lost: Callable[[str], None]
    on_push: Callable[[Frame], None]
    """Receives what the agent sends unasked."""
    was_stopped: bool
    """Whether it was lost because a test keeps stopping the processes of the box."""

    @property
    def is_lost(self) -> bool: ...

    def mark_lost(self, reason: str) -> None: ...

    def lost_error(self) -> ChannelLost: ...

    async def close(self) -> None: ...


class BoxSession(Protocol):
    """An open box, with an agent or with nothing but a shell."""

    generation: int
    saved_state: Mapping[str, Any]
    """What `save_state` stored in the box, in this session or an earlier one."""
    python: str
    """The version of its Python; "" if it has none."""
    executable: str
    has_services: bool
    is_empty: bool
    """Whether the box knows nothing of a tree: it is new, or a test has deleted what was stored there."""
    lost_in: str
    """The test that was running when the agent before this one was lost; "" if none was."""

    @property
    def channel(self) -> BoxConnection: ...

    @property
    def path_count(self) -> int:
        """The number of paths in the box that came from a snapshot."""

    async def open(self) -> None: ...

    async def save_state(self, state: Mapping[str, Any]) -> None: ...

    async def apply_services(self, order: Mapping[str, Any]) -> bytes: ...

    async def refresh(self) -> None:
        """Update our view of the tree: tests may write anywhere in it."""

    async def sync(self, snapshot: Snapshot, read: ContentReader) -> tuple[int, Delta]:
        """Bring the tree from its last refreshed state to the snapshot. Return the new generation and the delta."""

    async def fingerprints(self, python: str, paths: Collection[str]) -> Mapping[str, Any]:
        """Return rows of fingerprints of Python files by path; unreadable files are missing."""

    async def run(
        self, job: JobSpec, on_results: OnResults, on_output: OnOutput, stop: asyncio.Queue[bool] | None = None
    ) -> JobResult:
        """Run a job to its end. Each item of `stop` is a request to end it: True kills, False interrupts first."""
