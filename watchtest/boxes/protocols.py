"""What a box promises to the pipeline, and what a place must give to become one. No engine is known here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

from watchtest.agent.frames import Frame
from watchtest.boxes.no_python.shell_tools import PlainTools
from watchtest.core.model import BoxInfo, Delta, Entry, Snapshot, StopReason
from watchtest.errors import BoxError, ChannelLost

Note = Callable[[str], None]
"""Says a line to the user while something takes its time."""
ContentReader = Callable[[str, Entry], bytes]
"""The content of a path, or an exception if it is no longer that entry."""
OnResults = Callable[[list[dict[str, Any]]], None]
OnOutput = Callable[[str], None]


class ByteStream(Protocol):
    """The raw connection to an agent. Blocking; `read` and `write` are called from one thread each."""

    def read(self) -> bytes:
        """Some bytes, or b"" at the end."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None:
        """End the connection; a blocked `read` returns."""

    def last_words(self) -> str:
        """What the agent wrote to its stderr, the end of it."""


@dataclass(slots=True)
class StopSignal:
    """What was asked of a run that is under way: the loop writes it, the stages read it."""

    job_stops: asyncio.Queue[bool] = field(default_factory=asyncio.Queue)
    """A wish each, for the job that runs: True kills, False asks politely first."""
    stop: StopReason | None = None

    @property
    def is_set(self) -> bool:
        return self.stop is not None

    def set(self, stop: StopReason) -> None:
        self.stop = stop
        self.job_stops.put_nowait(stop is StopReason.KILLED)


# -- what a box is made of -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NamedImage:
    """An image that the engine has, or can pull."""

    name: str


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image made from a Dockerfile of the project. Built again exactly when `key` changes."""

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
class Recipe:
    """What a box of this project is made of: an image, and the shell commands that make it ready for tests."""

    image: ImageSource
    because: str
    """Why this image, in words for the user."""
    commands: tuple[str, ...]
    needs_pytest: bool
    """pytest is installed if the commands did not bring it."""
    key: str
    """Changes when the commands have to run again: they, or a dependency file, have changed."""


# -- places ----------------------------------------------------------------------------------------


class ExecMode(Enum):
    """How a command of the user is run in the box."""

    ATTACHED = auto()
    """On our own stdin, stdout and stderr, to its end."""
    TERMINAL = auto()
    """On a terminal of its own that is shown on ours, keys and window size passed on."""
    DETACHED = auto()
    """Left running, without input or output; no run's clean-up ends it."""


@dataclass(frozen=True, slots=True)
class OpenBox:
    """A living box with an agent that is about to say hello."""

    info: BoxInfo
    stream: ByteStream

    def close(self) -> None:
        self.stream.close()


@dataclass(frozen=True, slots=True)
class OpenShellBox:
    """A living box in which no agent can run, for want of a Python."""

    info: BoxInfo
    tools: PlainTools

    def close(self) -> None:
        self.tools.close()


def no_python_error() -> BoxError:
    """What asks for Python in a box that has none."""
    return BoxError(
        "no Python 3.8 or newer in the image",
        hint="set box.image to an image with Python, or box.python to its interpreter; `watchtest exec` works without",
    )


class BoxProvider(Protocol):
    """One kind of box: makes, finds and heals it. Every call is blocking and bounded in time."""

    root: str
    """Where the tree lies, as seen from inside."""
    home: str
    """Where the agent and the virtualenv live, as seen from inside."""
    engine: str
    variables: Mapping[str, str]
    """What every process of ours in it has in its environment."""
    is_shared: bool
    """Whether its Python is also the host's: then the box never uses or changes it in place."""
    keeps_processes: bool
    """Whether what was started in it lives on when the agent ends: services then outlive the watcher."""

    def open(self, agent: bytes, recipe: Recipe, note: Note) -> OpenBox | OpenShellBox:
        """Create, adopt, start or recreate the box, and start an agent in it from this zip, if it has a Python."""

    def image_of(self, recipe: Recipe) -> str:
        """The name of what its boxes are made from: verdicts are remembered by it."""

    def origin_of(self, recipe: Recipe) -> str:
        """What that image is at this moment, by its content; "" if it is not known."""

    def keep(self, recipe: Recipe, is_clean: bool, note: Note) -> None:
        """The setup of this recipe is done: keep the box as it is now, so that the next one need not repeat it.

        Clean: nothing but this one setup was ever done in it. What is not clean does not outlive a `reset`.
        """

    def allow_network(self, is_allowed: bool) -> None:
        """Connect or cut the box, where `box.network` says that only setup may use it."""

    def execute(
        self, argv: list[str], env: Mapping[str, str], path_first: tuple[str, ...], manner: ExecMode = ExecMode.ATTACHED
    ) -> int:
        """Run a command of the user in the box; its exit code (0 once it is started, if detached)."""

    def is_prepared(self) -> bool:
        """Whether a setup has been done in it, so that a command finds what it expects."""

    def snapshot(self, recipe: Recipe, note: Note) -> str:
        """Keep the box as what all boxes of this workspace grow from; the id of what was kept."""

    def reset(self, is_environment_too: bool) -> tuple[str, ...]:
        """Throw away every box of the workspace, and if asked all that was kept of them; what is gone, in words."""

    def inspect(self) -> BoxInfo | None:
        """The box as it stands, without touching it."""

    def describe(self) -> tuple[str, ...]:
        """What carries the box, in lines for people."""

    def close(self) -> None: ...


REPORT = "{watchtest-report}"
"""In a command's words: the file that it shall write its report to. Wherever that is, it comes back in `JobResult`."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command in the box. With `has_rows` each line of its stdout that is a JSON object is a row of results."""

    argv: tuple[str, ...]
    folder: str = ""
    """Where it runs, relative to the root of the tree."""
    has_rows: bool = False


@dataclass(frozen=True, slots=True)
class PytestCommand:
    """pytest by this interpreter; no tests given means all of them."""

    python: str
    args: tuple[str, ...] = ()
    tests: tuple[str, ...] | None = None
    folder: str = ""
    order: tuple[str, ...] = ()
    """Files of tests, in the order in which they shall run."""
    is_warm: bool = False
    """From a process that holds pytest and what it needs already, where that is safe."""
    record: bool = False
    """Tell what each test has touched."""
    first: tuple[str, ...] = ()
    """Tests to run before all others."""
    collects_all: bool = False
    """Look into every file for the tests, not just into those that hold them by their ids."""


@dataclass(frozen=True, slots=True)
class UnittestCommand:
    """unittest by this interpreter, from `folder`; no tests given means all that discovery finds."""

    python: str
    args: tuple[str, ...] = ()
    tests: tuple[str, ...] | None = None
    folder: str = ""
    record: bool = False


@dataclass(frozen=True, slots=True)
class JobLimits:
    run_s: float
    silence_s: float
    grace_s: float
    test_s: float = 0.0
    """For a single test, where the runner tells when one begins; 0 is no limit."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One supervised process in the box."""

    what: Command | PytestCommand | UnittestCommand
    limits: JobLimits
    env: Mapping[str, str] = field(default_factory=dict)
    path_first: tuple[str, ...] = ()
    """Folders before all others on PATH."""
    requires: int | None = None
    """The generation that the tree must be at; the agent refuses otherwise."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended, as the agent says: an explicit end, never just a stream that stopped."""

    exit_code: int | None
    stopped: str | None
    reason: str
    output: str
    stacks: str
    duration_s: float
    full_disk: str = ""
    """The folder of the box that had no room left when it ended."""
    current: str = ""
    """The test that had begun and not ended when the process was gone."""
    report: bytes | None = None
    """What the command wrote where REPORT pointed to; None: nothing."""
    is_warm: bool = False
    cold_because: str = ""
    """Why it did not run warm although that was wished."""


# -- sessions --------------------------------------------------------------------------------------


class BoxConnection(Protocol):
    """Whether a box is still there. Once lost, it stays so."""

    on_lost: Callable[[str], None]
    on_news: Callable[[Frame], None]

    @property
    def is_lost(self) -> bool: ...

    def lose(self, reason: str) -> None: ...

    def loss(self) -> ChannelLost: ...

    async def close(self) -> None: ...


class BoxSession(Protocol):
    """What can be done with an open box, whatever is in it: an agent, or nothing but a shell."""

    generation: int
    remembered: Mapping[str, Any]
    python: str
    """The version of its Python; "" if it has none."""
    executable: str
    has_services: bool

    @property
    def channel(self) -> BoxConnection: ...

    @property
    def path_count(self) -> int:
        """How many paths a snapshot has brought here."""

    async def open(self) -> None: ...

    async def remember(self, what: Mapping[str, Any]) -> None: ...

    async def order_services(self, order: Mapping[str, Any]) -> bytes: ...

    async def refresh(self) -> None:
        """Learn what became of the tree since it was last looked at."""

    async def sync(self, snapshot: Snapshot, read: ContentReader) -> tuple[int, Delta]:
        """Bring the tree, as `refresh` saw it, to the snapshot. The generation it is at then, and what was done."""

    async def prints(self, python: str, paths: Collection[str]) -> Mapping[str, Any]:
        """Rows of prints of Python files, by path, made by that interpreter; fewer where that cannot be."""

    async def run(
        self, job: JobSpec, on_results: OnResults, on_output: OnOutput, stop: asyncio.Queue[bool] | None = None
    ) -> JobResult:
        """Run a job to its end. Each item of `stop` is a wish to end it: True kills, False asks it politely first."""
