"""Every key: its type, limits, default and one-line description. Knows nothing of files or the environment.

Strict: "1" is not 1 and 1 is not true. A description here is also the key's comment in the top-level config.toml;
a test holds the two together.

A pattern that text must match, with the words its writer reads when it does not.

pydantic's own `pattern` would do, but its message shows the regular expression; nobody mends a config by reading one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from watchtest.core.model import EngineName

SHAPE = "shape"  # the error type by which problems.py knows that the message is already ours
NOT_TEXT = "must be valid UTF-8 text"


@dataclass(frozen=True, slots=True)
class Shape:
    pattern: str  # anchored, because JSON Schema searches
    demand: str

    def check(self, value: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:  # bytes of an environment variable that are no text
            raise PydanticCustomError(SHAPE, "{demand}", {"demand": NOT_TEXT}) from None
        if re.fullmatch(self.pattern, value) is None:  # `$` alone would let a line break through
            raise PydanticCustomError(SHAPE, "{demand}", {"demand": self.demand})
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(schema) | {"pattern": self.pattern}


Policy = Literal["off", "affected", "failed", "all"]
Network = Literal["on", "off", "setup"]
Sandbox = Literal["auto", "on", "off"]
Warm = Literal["auto", "on", "off"]
OnChange = Literal["smart", "restart", "queue"]
SelectionMode = Literal["affected", "conservative", "all"]
NotifyMode = Literal["changes", "failures", "all", "off"]
TerminalNotice = Literal["auto", "bell", "osc9", "osc777", "osc99", "off"]

ORDER = "order"  # the error type of two keys that contradict each other; its context names both

Text = Annotated[str, Shape(r"^[^\x00]+$", "must not be empty nor hold a NUL character")]
RulePattern = Annotated[
    str,
    Shape(
        r"^[^\x00]*\S\s*->\s*\S[^\x00]*$", 'must be like "templates/** -> tests/web": files, and where their tests are'
    ),
]
Argument = Annotated[str, Shape(r"^[^\x00]*$", "must not hold a NUL character")]
Image = Annotated[str, Shape(r"^[^\s\x00]+$", 'must be "auto" or the name of an image, without spaces')]
WorkspaceFile = Annotated[
    str,
    Shape(
        r"^([^/\x00-\x1f][^\x00-\x1f]*)?$",
        'must be a path relative to the top of the workspace, like "docker/Dockerfile"; "" is none',
    ),
]
Workdir = Annotated[
    str,
    Shape(
        r"^(/(?!\.{1,2}(/|$))[^/\x00-\x1f]+)+$",
        'must be an absolute path other than "/", without ".", ".." or a "/" at its end; write "/workspace"',
    ),
]
User = Annotated[
    str,
    Shape(
        r"^([A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?)?$",
        'must be like "name", "name:group" or "1000:1000"; "" is the image\'s own',
    ),
]
Certificates = Annotated[
    str,
    Shape(
        r"^(auto|off|[^\x00-\x1f]*[/\\.][^\x00-\x1f]*)$",  # a bare word is a slip such as "on", not a path
        'must be "auto", "off" or the path of a certificate bundle; write "./NAME" for a bare file name',
    ),
]
QuietHours = Annotated[
    str,
    Shape(
        r"^((?!(.+)-\2$)([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9])?$",
        'must be two times of the day like "22:00-07:00"; "" is never',
    ),
]
Size = Annotated[str, Shape(r"^([1-9][0-9]*[kmgKMG])?$", 'must be a size like "512m" or "4g"; "" is no limit')]
Variable = Annotated[
    str,
    Shape(
        r"^[A-Za-z_][A-Za-z0-9_]*$",
        "must be the name of an environment variable alone; its value is taken from the host",
    ),
]

# Lists in TOML, tuples here: the container may be turned, what is in it stays strict.
Texts = Annotated[tuple[Text, ...], Field(strict=False)]
Arguments = Annotated[tuple[Argument, ...], Field(strict=False)]
Variables = Annotated[tuple[Variable, ...], Field(strict=False)]

Port = Annotated[int, Field(ge=1, le=65_535)]
Ports = Annotated[tuple[Port, ...], Field(strict=False)]
RunnerKind = Literal["pytest", "unittest", "go", "cargo", "vitest", "jest", "command"]
RunnerName = Annotated[
    str, Shape(r"^([A-Za-z0-9][A-Za-z0-9._-]{0,62})?$", 'must be letters, digits, ".", "_" and "-", like "lint"')
]
Folder = Annotated[
    str,
    Shape(
        r"^((?!\.{1,2}(/|$))[^/\x00-\x1f]+(/(?!\.{1,2}(/|$))[^/\x00-\x1f]+)*)?$",
        'must be a folder of the workspace, like "web/app", without "." or ".."; "" is its top',
    ),
]
ServiceName = Annotated[
    str, Shape(r"^[a-z0-9][a-z0-9-]{0,62}$", 'must be lower-case letters, digits and "-", like "key-value"')
]
# Ports as numbers up to 65535; nothing but the loopback, for whoever can reach it can have tests run.
Loopback = Annotated[
    str,
    Shape(
        r"^((127\.0\.0\.1|localhost|\[::1\]):"
        r"(0|[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?$",
        'must be a port of this machine alone, like "127.0.0.1:7357" or "[::1]:7357"; port 0 is any, "" is none',
    ),
]
Url = Annotated[str, Shape(r"^https?://[^\s/]+(/\S*)?$", 'must be a URL like "http://localhost:8000/health"')]
Environment = dict[Variable, Argument]
PROXIES = tuple(name for word in ("HTTP", "HTTPS", "ALL", "NO") for name in (f"{word}_PROXY", f"{word}_PROXY".lower()))

Seconds = Annotated[float, Field(gt=0, le=604_800)]  # a week; an endless number would overflow a clock

DEPENDENCIES = (
    *("pyproject.toml", "setup.py", "setup.cfg", ".python-version"),
    *("requirements*.txt", "*-requirements.txt", "requirements/*.txt", "constraints*.txt"),
    *("uv.lock", "poetry.lock", "pdm.lock", "Pipfile", "Pipfile.lock", "pylock*.toml"),
    *("package.json", "package-lock.json", "pnpm-lock.yaml", "yarn.lock"),
    *("go.mod", "go.sum", "Cargo.toml", "Cargo.lock"),
)


def _word_or_list(value: object) -> str:
    return "word" if isinstance(value, str) else "list"


# Told apart by hand, so that a wrong command in the list is one problem and not one for each half of the union.
Setup = Annotated[Annotated[Literal["auto"], Tag("word")] | Annotated[Texts, Tag("list")], Discriminator(_word_or_list)]


Command = Annotated[
    Annotated[Text, Tag("word")] | Annotated[Texts, Tag("list"), Field(min_length=1)], Discriminator(_word_or_list)
]
Hook = Annotated[Annotated[Argument, Tag("word")] | Annotated[Texts, Tag("list")], Discriminator(_word_or_list)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Triggers(Section):
    """What starts a run, and which tests it runs."""

    save: Policy = Field(default="affected", description="Tests to run after a save: off, affected, failed or all.")
    stage: Policy = Field(default="off", description="Tests to run on what is staged, when that changes.")
    commit: Policy = Field(default="off", description="Tests to run on HEAD, when it moves.")


class Watch(Section):
    """Which files are watched and mirrored, and how saves are gathered."""

    debounce_ms: int = Field(
        default=50, ge=0, le=10_000, description="Quiet time after a save before its verdict is given."
    )
    debounce_cap_ms: int = Field(
        default=1000, ge=0, le=600_000, description="Longest wait while saves keep coming; at least debounce_ms."
    )
    ignore: Texts = Field(default=(), description="Gitignore globs left out, on top of what git ignores.")
    include: Texts = Field(
        default=(), description="Gitignore-style globs brought back although they are ignored or may hold secrets."
    )
    poll: bool = Field(default=False, description="Look at the files every second, for mounts that send no events.")
    max_file_mb: int = Field(default=512, ge=1, le=4096, description="Files above this size are left out, and said so.")
    shrink_guard: bool = Field(default=True, description="Ask before a sync that empties more than half of the box.")
    rules: Annotated[tuple[RulePattern, ...], Field(strict=False)] = Field(
        default=(),
        description='What nobody can see: "templates/** -> tests/web" runs these tests, or that runner, for those.',
    )

    @model_validator(mode="after")
    def _cap_is_not_below_debounce(self) -> Watch:
        if self.debounce_cap_ms < self.debounce_ms:
            raise PydanticCustomError(ORDER, "", {"low": "watch.debounce_ms", "high": "watch.debounce_cap_ms"})
        return self


class Box(Section):
    """The persistent isolated place where the tests run."""

    engine: EngineName = Field(default="auto", description="What makes the box: auto, docker, podman or local.")
    image: Image = Field(default="auto", description="Image of the box; auto chooses one from the project.")
    dockerfile: WorkspaceFile = Field(
        default="", description="Dockerfile of the workspace to build the image from, unless image names one."
    )
    workdir: Workdir = Field(default="/workspace", description="Folder of the code in the box.")
    user: User = Field(default="", description="User in the box, by name or number; empty is the image's own.")
    python: Argument = Field(default="", description="Python in the box that runs the tests; empty finds one.")
    setup: Setup = Field(default="auto", description="Shell commands run once in a new box; auto installs the project.")
    dependencies: Texts = Field(
        default=DEPENDENCIES,
        description="Globs of the files that setup depends on: it runs again when one changes.",
    )
    setup_timeout_s: Seconds = Field(default=900.0, description="Seconds that setup may take.")
    environment: Variables = Field(
        default=PROXIES, description="Names of host environment variables carried into the box; all others stay out."
    )
    ca: Certificates = Field(
        default="auto", description="Certificates the box trusts: auto (the host's), off or a path."
    )
    network: Network = Field(default="on", description="Network of the box: on, off, or only while setup runs.")
    sandbox: Sandbox = Field(
        default="auto", description="Bubblewrap around the local box: auto (where it works), on or off."
    )
    ports: Ports = Field(default=(), description="Ports of the box that this machine, and no other, can reach.")
    cache: bool = Field(default=True, description="Keep what pip, uv, npm, cargo and go download, for the next box.")
    memory: Size = Field(default="", description="Memory limit such as 512m or 4g; empty is no limit.")
    cpus: float = Field(default=0.0, ge=0, le=4096, description="Processor limit, fractions allowed; 0 is no limit.")
    pids: int = Field(default=4096, ge=16, le=4_194_304, description="Most processes and threads in the box at a time.")
    hardened: bool = Field(default=False, description="Drop every capability; needs a user other than root.")


class Runner(Section):
    """How the tests are run."""

    args: Arguments = Field(default=(), description="Extra arguments for pytest.")
    timeout_s: Seconds = Field(default=300.0, description="Seconds that a run may take.")
    test_timeout_s: float = Field(
        default=0.0, ge=0, le=604_800, description="Seconds that a single test may take; 0 is no limit."
    )
    silence_timeout_s: Seconds = Field(default=120.0, description="Seconds a run may go without any sign of life.")
    grace_s: float = Field(
        default=2.0, ge=0, le=600, description="Seconds between each harder signal to a run being ended."
    )
    warm: Warm = Field(
        default="auto", description="Fork runs from a process that holds pytest already: auto (where safe), on or off."
    )
    workers: int = Field(
        default=1, ge=1, le=1024, description="Processes that run tests side by side; pytest needs pytest-xdist for it."
    )
    on_change: OnChange = Field(
        default="smart",
        description="A change during a run: smart ends it if tests to come are reached, restart always, queue never.",
    )


class Selection(Section):
    """Which tests a change can affect, where a trigger says affected."""

    mode: SelectionMode = Field(
        default="affected",
        description="By functions (affected), by whole files (conservative), or no selection (all).",
    )
    audit_runs: int = Field(
        default=50, ge=0, le=100_000, description="After so many runs of some tests one of all checks them; 0 is never."
    )
    audit_idle_s: float = Field(
        default=300.0, ge=0, le=604_800, description="So is it after so many seconds at rest; 0 is never."
    )


class Notify(Section):
    """Who is told about a change of verdict."""

    desktop: bool = Field(default=True, description="By notifications on the desktop.")
    mode: NotifyMode = Field(
        default="changes",
        description="Told are changes of colour and new failures, failures alone, all verdicts, or nothing (off).",
    )
    quiet_hours: QuietHours = Field(
        default="", description='Local time when nobody is told, like "22:00-07:00"; at its end, what it has changed.'
    )
    terminal: TerminalNotice = Field(
        default="auto",
        description="Where the desktop cannot be reached: auto, bell, osc9, osc777, osc99 or off.",
    )
    hook: Hook = Field(
        default="",
        description="Shell command, or list of words, run on this machine with each notice as JSON on stdin.",
    )


class History(Section):
    """What is remembered of past runs."""

    enabled: bool = Field(default=True, description="Keep the results of every run.")
    max_days: int = Field(default=365, ge=0, le=36_500, description="Days a run is kept at most; 0 is no limit.")
    max_runs: int = Field(default=50_000, ge=0, le=100_000_000, description="Runs kept at most; 0 is no limit.")
    max_mb: int = Field(default=256, ge=0, le=1_000_000, description="Megabytes kept at most; 0 is no limit.")


class Api(Section):
    """How programs speak with the watcher, beside its unix socket."""

    listen: Loopback = Field(
        default="", description='TCP on this machine alone, with a token: "127.0.0.1:7357"; empty is none.'
    )


class Ready(Section):
    """How a service is known to be ready: one of tcp, http and command."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": [one]} for one in ("tcp", "http", "command")]},
    )

    tcp: Port | None = Field(default=None, description="Port of the box that answers.")
    http: Url | None = Field(default=None, description="URL that answers below 400, as seen in the box.")
    command: Text | None = Field(default=None, description="Shell command that succeeds.")
    timeout_s: Seconds = Field(default=30.0, description="Seconds until it has to be ready.")

    @model_validator(mode="after")
    def _is_one_check(self) -> Ready:
        given = [name for name in ("tcp", "http", "command") if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"not {' and '.join(given)}" if given else "and there is none"
            raise PydanticCustomError(SHAPE, "", {"demand": f"must have one of tcp, http and command, {found}"})
        return self


class Service(Section):
    """A program that runs in the box beside the tests, and is ready before they start."""

    name: ServiceName = Field(description="Name of the service; its log is called after it.")
    command: Command = Field(description="What to run: a shell command, or a list of words without a shell.")
    ready: Ready | None = Field(
        default=None, description="When it is ready: a tcp port, an http URL or a command; without, once it runs."
    )
    restart_on: Setup = Field(
        default="auto",
        description="Globs of files that restart it when changed; auto: any but tests, texts and dependencies.",
    )
    env: Environment = Field(
        default={}, description="Environment variables of its own.", json_schema_extra={"additionalProperties": False}
    )
    restart_limit: int = Field(
        default=5, ge=0, le=1000, description="Restarts after failures until it is given up, with growing pauses."
    )


class RunnerChoice(Section):
    """A test tool to run; given one, none is looked for."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"kind": {"const": "command"}}},
            "then": {"required": ["command"], "properties": {"command": {"not": {"type": "null"}}}},
            "else": {"properties": {"command": {"type": "null"}, "junit": {"maxLength": 0}}},
        },
    )

    kind: RunnerKind = Field(description="pytest, unittest, go, cargo, vitest, jest or command.")
    name: RunnerName = Field(default="", description="Name of the runner; empty is its kind.")
    folder: Folder = Field(default="", description="Folder it runs in; empty is the top of the workspace.")
    args: Arguments = Field(default=(), description="Extra arguments for it.")
    command: Command | None = Field(
        default=None, description="For command: a shell command, or a list of words without a shell."
    )
    junit: WorkspaceFile = Field(
        default="",
        description="For command: JUnit XML that it writes, seen from folder; without, its exit code counts.",
    )
    env: Environment = Field(
        default={}, description="Environment variables of its own.", json_schema_extra={"additionalProperties": False}
    )

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> RunnerChoice:
        demand = ""
        if self.kind == "command" and self.command is None:
            demand = 'kind "command" needs what to run; write command = "…"'
        elif self.kind != "command" and self.command is not None:
            demand = f'command is for kind "command" alone; "{self.kind}" takes args'
        elif self.kind != "command" and self.junit:
            demand = f'junit is for kind "command" alone; "{self.kind}" is read without it'
        if demand:
            raise PydanticCustomError(SHAPE, "", {"demand": demand})
        return self


class Config(Section):
    """Settings of watchtest."""

    model_config = ConfigDict(title="watchtest config")

    triggers: Triggers = Triggers()
    watch: Watch = Watch()
    box: Box = Box()
    runner: Runner = Runner()
    selection: Selection = Selection()
    notify: Notify = Notify()
    history: History = History()
    api: Api = Api()
    runners: Annotated[tuple[RunnerChoice, ...], Field(strict=False)] = Field(
        default=(), description="Test tools to run, in place of those that are found."
    )
    services: Annotated[tuple[Service, ...], Field(strict=False)] = Field(
        default=(), description="Programs that run in the box beside the tests."
    )

    @field_validator("services")
    @classmethod
    def _services_have_different_names(cls, services: tuple[Service, ...]) -> tuple[Service, ...]:
        _differ([service.name for service in services])
        return services

    @field_validator("runners")
    @classmethod
    def _runners_have_different_names(cls, runners: tuple[RunnerChoice, ...]) -> tuple[RunnerChoice, ...]:
        _differ([runner.name or runner.kind for runner in runners])
        return runners


def _differ(names: list[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise PydanticCustomError(SHAPE, "", {"demand": f'two of them are named "{twice}"; give each its own name'})


SERVICES = "services"
RUNNERS = "runners"
LISTS = (RUNNERS, SERVICES)
"""The keys that are no sections: lists of tables, written as [[runners]] and [[services]]."""

SECTIONS: Mapping[str, type[Section]] = MappingProxyType(
    {
        "triggers": Triggers,
        "watch": Watch,
        "box": Box,
        "runner": Runner,
        "selection": Selection,
        "notify": Notify,
        "history": History,
        "api": Api,
    }
)


def keys() -> Mapping[str, FieldInfo]:
    """Every key by its dotted name, in the order of the file."""
    return {f"{name}.{key}": field for name, kind in SECTIONS.items() for key, field in kind.model_fields.items()}


def json_schema() -> dict[str, Any]:
    """For editors: completes and checks a config file while it is written."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}
