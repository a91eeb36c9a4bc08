"""Every config key with its type, limits, default and one-line description. Knows nothing of files or the environment.

Validation is strict: "1" is not 1, and 1 is not true. The description of a key is also its comment in the top-level
config.toml; a test keeps the two equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from watchtest.config.host_reach import HostReach, is_path, limit_above, looser, more_than, other_than, replaces_own
from watchtest.core.model import EngineName
from watchtest.runners.registry import KINDS
from watchtest.workspace.consent import Boxes

PATTERN = "shape"  # the type of errors whose message is written here, not by pydantic
NOT_TEXT = "must be valid UTF-8 text"


@dataclass(frozen=True, slots=True)
class TextPattern:
    """A pattern that text must match, and the message if it does not; pydantic's own would show the expression."""

    pattern: str  # anchored, because JSON Schema searches
    demand: str

    def check(self, value: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:  # an environment variable with invalid bytes
            raise PydanticCustomError(PATTERN, "{demand}", {"demand": NOT_TEXT}) from None
        if re.fullmatch(self.pattern, value) is None:  # `$` alone would accept a trailing line break
            raise PydanticCustomError(PATTERN, "{demand}", {"demand": self.demand})
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return handler(schema) | {"pattern": self.pattern}


Policy = Literal["off", "affected", "failed", "all"]
Network = Literal["on", "off", "setup"]
Sandbox = Literal["auto", "on", "off"]
Warm = Literal["auto", "on", "off"]
OnChange = Literal["smart", "restart", "queue"]
SelectionMode = Literal["affected", "conservative", "all"]
NotifyMode = Literal["changes", "failures", "all", "off"]
TerminalNotice = Literal["auto", "bell", "osc9", "osc777", "osc99", "off"]

EXHAUSTS = "the box can use up what your machine needs for itself"
RUNS_ON_HOST = "the box has no sandbox, so this runs on your machine"

ORDER = "order"  # the error type of two contradicting keys; its context names both

Text = Annotated[str, TextPattern(r"^[^\x00]+$", "must not be empty or contain a NUL character")]
RulePattern = Annotated[
    str,
    TextPattern(
        r"^[^\x00]*\S\s*->\s*\S[^\x00]*$",
        'must be like "templates/** -> tests/web": files, and the folder of their tests',
    ),
]
Argument = Annotated[str, TextPattern(r"^[^\x00]*$", "must not contain a NUL character")]
Image = Annotated[str, TextPattern(r"^[^\s\x00]+$", 'must be "auto" or the name of an image, without spaces')]
WorkspaceFile = Annotated[
    str,
    TextPattern(
        r"^([^/\x00-\x1f][^\x00-\x1f]*)?$",
        'must be a path relative to the top of the workspace, like "docker/Dockerfile"; "" means none',
    ),
]
Workdir = Annotated[
    str,
    TextPattern(
        r"^(/(?!\.{1,2}(/|$))[^/\x00-\x1f]+)+$",
        'must be an absolute path other than "/", without ".", ".." or a trailing "/"; write "/workspace"',
    ),
]
User = Annotated[
    str,
    TextPattern(
        r"^([A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?)?$",
        'must be like "name", "name:group" or "1000:1000"; "" means the image\'s own',
    ),
]
Certificates = Annotated[
    str,
    TextPattern(
        r"^(auto|off|[^\x00-\x1f]*[/\\.][^\x00-\x1f]*)$",  # a bare word is a mistake such as "on", not a path
        'must be "auto", "off" or the path of a certificate bundle; write "./NAME" for a bare file name',
    ),
]
QuietHours = Annotated[
    str,
    TextPattern(
        r"^((?!(.+)-\2$)([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9])?$",
        'must be two times of day, like "22:00-07:00"; "" means never',
    ),
]
Size = Annotated[
    str,
    TextPattern(r"^(auto|([1-9][0-9]*[kmgKMG])?)$", 'must be "auto" or a size like "512m" or "4g"; "" means no limit'),
]
Variable = Annotated[
    str,
    TextPattern(
        r"^[A-Za-z_][A-Za-z0-9_]*$",
        "must be only the name of an environment variable; its value is taken from the host",
    ),
]

# Lists in TOML become tuples here; only the container may be converted, its items stay strict.
Texts = Annotated[tuple[Text, ...], Field(strict=False)]
Arguments = Annotated[tuple[Argument, ...], Field(strict=False)]
Variables = Annotated[tuple[Variable, ...], Field(strict=False)]

Port = Annotated[int, Field(ge=1, le=65_535)]
Ports = Annotated[tuple[Port, ...], Field(strict=False)]
if TYPE_CHECKING:
    RunnerKindName = str
else:
    RunnerKindName = Literal[tuple(KINDS)]
RunnerName = Annotated[
    str,
    TextPattern(
        r"^([A-Za-z0-9][A-Za-z0-9._-]{0,62})?$", 'must consist of letters, digits, ".", "_" and "-", like "lint"'
    ),
]
Folder = Annotated[
    str,
    TextPattern(
        r"^((?!\.{1,2}(/|$))[^/\x00-\x1f]+(/(?!\.{1,2}(/|$))[^/\x00-\x1f]+)*)?$",
        'must be a folder of the workspace, like "web/app", without "." or ".."; "" means its top',
    ),
]
ServiceName = Annotated[
    str,
    TextPattern(r"^[a-z0-9][a-z0-9-]{0,62}$", 'must consist of lower-case letters, digits and "-", like "key-value"'),
]
# Only loopback addresses: any client that reaches the API can run tests.
Loopback = Annotated[
    str,
    TextPattern(
        r"^((127\.0\.0\.1|localhost|\[::1\]):"
        r"(0|[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?$",
        'must be a loopback address, like "127.0.0.1:7357" or "[::1]:7357"; port 0 means any free port, "" means none',
    ),
]
Url = Annotated[str, TextPattern(r"^https?://[^\s/]+(/\S*)?$", 'must be a URL like "http://localhost:8000/health"')]
Environment = dict[Variable, Argument]
PROXIES = tuple(name for word in ("HTTP", "HTTPS", "ALL", "NO") for name in (f"{word}_PROXY", f"{word}_PROXY".lower()))

Seconds = Annotated[float, Field(gt=0, le=604_800)]  # a week; an infinite number would overflow a clock

DEPENDENCIES = (
    *("pyproject.toml", "setup.py", "setup.cfg", ".python-version"),
    *("requirements*.txt", "*-requirements.txt", "requirements/*.txt", "constraints*.txt"),
    *("uv.lock", "poetry.lock", "pdm.lock", "Pipfile", "Pipfile.lock", "pylock*.toml"),
    *("package.json", "package-lock.json", "pnpm-lock.yaml", "yarn.lock"),
    *("go.mod", "go.sum", "Cargo.toml", "Cargo.lock"),
)


def _auto_or_number(value: object) -> str:
    return "word" if value == "auto" else "number"


def _enough_or_unlimited(value: int) -> int:
    if 0 < value < LEAST_PROCESSES:
        raise PydanticCustomError("greater_than_equal", "", {"ge": LEAST_PROCESSES})
    return value


LEAST_PROCESSES = 16
Processors = Annotated[
    Annotated[Literal["auto"], Tag("word")] | Annotated[float, Tag("number"), Field(ge=0, le=4096)],
    Discriminator(_auto_or_number),
]
Processes = Annotated[
    Annotated[Literal["auto"], Tag("word")]
    | Annotated[int, Field(ge=0, le=4_194_304), AfterValidator(_enough_or_unlimited), Tag("number")],
    Discriminator(_auto_or_number),
]


def _word_or_list(value: object) -> str:
    return "word" if isinstance(value, str) else "list"


# With a discriminator, a wrong command in the list is one problem, not one for each half of the union.
Setup = Annotated[Annotated[Literal["auto"], Tag("word")] | Annotated[Texts, Tag("list")], Discriminator(_word_or_list)]


Command = Annotated[
    Annotated[Text, Tag("word")] | Annotated[Texts, Tag("list"), Field(min_length=1)], Discriminator(_word_or_list)
]
Hook = Annotated[Annotated[Argument, Tag("word")] | Annotated[Texts, Tag("list")], Discriminator(_word_or_list)]


Value = TypeVar("Value")


def key(default: Value, description: str, *, reach: HostReach | None = None, **limits: Any) -> Value:
    """Return a field of a section; pydantic checks the limits. `reach` says which values need the user's consent."""
    field: Any = Field(default=default, description=description, **limits)
    field.metadata += [reach] if reach else []
    attribute: Value = field
    return attribute


class Section(BaseModel):
    """A table of the config file."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class TriggerSettings(Section):
    """What starts a run, and which tests it runs."""

    save: Policy = key("affected", "Tests to run after a save: off, affected, failed or all.")
    stage: Policy = key("off", "Tests to run on the staged content when it changes.")
    commit: Policy = key("off", "Tests to run on HEAD when it moves.")


class WatchSettings(Section):
    """Which files are watched and mirrored, and how saves are grouped."""

    debounce_ms: int = key(
        50, "Milliseconds without changes after a save before its verdict is shown.", ge=0, le=10_000
    )
    debounce_cap_ms: int = key(1000, "Longest wait while saves keep coming; at least debounce_ms.", ge=0, le=600_000)
    ignore: Texts = key((), "Gitignore-style globs to leave out, in addition to git's own.")
    include: Texts = key(
        (),
        "Gitignore-style globs to keep although they are ignored or may hold secrets.",
        reach=HostReach("files that git ignores or that may hold secrets are copied into the box", more_than()),
    )
    poll: bool = key(False, "Check the files every second, for mounts that send no events.")
    max_file_mb: int = key(512, "Larger files are left out, with a notice.", ge=1, le=4096)
    shrink_guard: bool = key(True, "Ask before a sync that removes more than half of the files.")
    rules: Annotated[tuple[RulePattern, ...], Field(strict=False)] = key(
        (), 'Dependencies that cannot be detected: "templates/** -> tests/web" runs those tests or a runner.'
    )

    @model_validator(mode="after")
    def _cap_is_not_below_debounce(self) -> WatchSettings:
        if self.debounce_cap_ms < self.debounce_ms:
            raise PydanticCustomError(ORDER, "", {"low": "watch.debounce_ms", "high": "watch.debounce_cap_ms"})
        return self


class BoxSettings(Section):
    """The persistent, isolated environment in which the tests run."""

    engine: EngineName = key(
        "auto",
        "What runs the box: auto, docker, podman or local.",
        reach=HostReach(
            "the tests may run on your machine instead of in a container", looser("podman", "docker", "auto", "local")
        ),
    )
    image: Image = key("auto", "Image of the box; auto chooses one that suits the project.")
    dockerfile: WorkspaceFile = key("", "Dockerfile in the workspace to build the image from, unless image names one.")
    workdir: Workdir = key("/workspace", "Folder in the box that holds the code.")
    user: User = key(
        "",
        "User in the box, by name or number; empty means the image's own.",
        reach=HostReach("the box runs as another user than the one in your settings", replaces_own),
    )
    python: Argument = key(
        "",
        "Python in the box that runs the tests; found if empty.",
        reach=HostReach("watchtest starts this program on your machine", is_path, Boxes.LOCAL),
    )
    setup: Setup = key(
        "auto",
        "Shell commands run once in a new box; auto installs the project.",
        reach=HostReach(RUNS_ON_HOST, other_than("auto", []), Boxes.BARE),
    )
    dependencies: Texts = key(
        DEPENDENCIES, "Globs of the files that setup depends on, besides those that they and box.setup name."
    )
    setup_timeout_s: Seconds = key(900.0, "Time limit of setup in seconds.")
    environment: Variables = key(
        PROXIES,
        "Names of the host's environment variables to pass into the box; no others are.",
        reach=HostReach("the box gets the values of these variables of your environment", more_than(PROXIES)),
    )
    ca: Certificates = key(
        "auto",
        "Certificates the box trusts: auto (the host's), off or a path.",
        reach=HostReach("this file of your machine is copied into the box", other_than("auto", "off")),
    )
    network: Network = key(
        "on",
        "Network of the box: on, off or setup (only while setup runs).",
        reach=HostReach("the box reaches a network that your settings forbid", looser("off", "setup", "on")),
    )
    sandbox: Sandbox = key(
        "auto",
        "Run the local box in bubblewrap: auto (where it works), on or off.",
        reach=HostReach(
            "setup and tests run on your machine, as you, without a sandbox", looser("on", "auto", "off"), Boxes.LOCAL
        ),
    )
    ports: Ports = key(
        (),
        "Ports of the box that can be reached from this machine only.",
        reach=HostReach("these ports of your machine lead into the box", more_than()),
    )
    git: bool = key(True, "Give the box a small git repository made for it: version, tags, branch, status.")
    cache: bool = key(True, "Keep the downloads of pip, uv, npm, cargo and go for the next box.")
    memory: Size = key(
        "auto",
        "Memory limit: auto (a share of the machine's), such as 4g, or empty for no limit.",
        reach=HostReach(EXHAUSTS, limit_above("16g")),
    )
    cpus: Processors = key(
        "auto",
        "CPU limit: auto (a bit less than the machine has), a number, or 0 for no limit.",
        reach=HostReach(EXHAUSTS, limit_above(4096)),
    )
    pids: Processes = key(
        "auto",
        "Maximum number of processes and threads: auto (derived from the machine), or 0 for no limit.",
        reach=HostReach(EXHAUSTS, limit_above(4096)),
    )
    hardened: bool = key(
        False,
        "Drop every capability; requires a user other than root.",
        reach=HostReach("the box keeps capabilities that your settings drop", looser(True, False)),
    )


class RunnerSettings(Section):
    """How the tests are run."""

    args: Arguments = key((), "Extra arguments for pytest.")
    timeout_s: Seconds = key(300.0, "Time limit of a run in seconds.")
    test_timeout_s: float = key(0.0, "Time limit of a single test in seconds; 0 means no limit.", ge=0, le=604_800)
    silence_timeout_s: Seconds = key(120.0, "Seconds without output until a run is stopped.")
    grace_s: float = key(2.0, "Seconds between SIGINT, SIGTERM and SIGKILL when a run is stopped.", ge=0, le=600)
    warm: Warm = key("auto", "Fork runs from a process that has loaded pytest: auto (where safe), on or off.")
    workers: int = key(1, "Processes that run tests in parallel; pytest needs pytest-xdist for it.", ge=1, le=1024)
    on_change: OnChange = key(
        "smart", "A change during a run: smart stops it if later tests are affected, restart always, queue never."
    )


class SelectionSettings(Section):
    """How affected tests are selected, for triggers that are set to affected."""

    mode: SelectionMode = key(
        "affected", "Select by function (affected), by whole file (conservative) or not at all (all)."
    )
    audit_runs: int = key(
        50, "Check the selection by a full run after this many runs; 0 means never.", ge=0, le=100_000
    )
    audit_idle_s: float = key(300.0, "Also check it after this many idle seconds; 0 means never.", ge=0, le=604_800)


class NotifySettings(Section):
    """How changes of the verdict are announced."""

    desktop: bool = key(True, "Show desktop notifications.")
    mode: NotifyMode = key(
        "changes", "Announce changes between red and green and new failures (changes), failures, all verdicts or off."
    )
    quiet_hours: QuietHours = key(
        "", 'Local time without notifications, like "22:00-07:00"; a summary follows at its end.'
    )
    terminal: TerminalNotice = key(
        "auto", "Fallback if the desktop cannot be reached: auto, bell, osc9, osc777, osc99 or off."
    )
    hook: Hook = key(
        "",
        "Shell command, or list of arguments, run on this machine with each notice as JSON on stdin.",
        reach=HostReach("this command runs on your machine with each notification", other_than("", [])),
    )


class HistorySettings(Section):
    """What is stored about past runs."""

    enabled: bool = key(True, "Store the results of every run.")
    max_days: int = key(365, "Maximum age of runs in days; 0 means no limit.", ge=0, le=36_500)
    max_runs: int = key(50_000, "Maximum number of runs; 0 means no limit.", ge=0, le=100_000_000)
    max_mb: int = key(256, "Maximum size in megabytes; 0 means no limit.", ge=0, le=1_000_000)


class ApiSettings(Section):
    """How programs reach the watcher, besides its Unix socket."""

    listen: Loopback = key(
        "",
        'Loopback TCP address like "127.0.0.1:7357", protected by a token; empty means none.',
        reach=HostReach("this port of your machine accepts requests for the watcher", other_than("")),
    )


class ReadySettings(Section):
    """When a service counts as ready: exactly one of tcp, http and command."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [one]} for one in ("tcp", "http", "command")]})

    tcp: Port | None = key(None, "Port in the box that accepts connections.")
    http: Url | None = key(None, "URL, as seen in the box, that returns a status below 400.")
    command: Text | None = key(None, "Shell command that succeeds.")
    timeout_s: Seconds = key(30.0, "Seconds within which it has to become ready.")

    @model_validator(mode="after")
    def _is_one_check(self) -> ReadySettings:
        given = [name for name in ("tcp", "http", "command") if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"not {' and '.join(given)}" if given else "but has none"
            raise PydanticCustomError(PATTERN, "", {"demand": f"must have one of tcp, http and command, {found}"})
        return self


class ServiceSettings(Section):
    """A program that runs in the box alongside the tests, and is ready before they start."""

    name: ServiceName = Field(description="Name of the service and of its log.")
    command: Command = Field(description="What to run: a shell command, or a list of arguments without a shell.")
    ready: ReadySettings | None = key(
        None, "When it is ready: a tcp port, an http URL or a command; if omitted, once it runs."
    )
    restart_on: Setup = key(
        "auto", "Globs of files that restart it; auto: all but tests, documentation and dependency files."
    )
    env: Environment = key({}, "Its own environment variables.", json_schema_extra={"additionalProperties": False})
    restart_limit: int = key(5, "Restarts after failures, with growing pauses, before it is given up.", ge=0, le=1000)


class RunnerEntry(Section):
    """A test tool to run. If any is given, none is detected."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"kind": {"const": "command"}}},
            "then": {"required": ["command"], "properties": {"command": {"not": {"type": "null"}}}},
            "else": {"properties": {"command": {"type": "null"}, "junit": {"maxLength": 0}}},
        }
    )

    kind: RunnerKindName = Field(description=f"{', '.join([*KINDS][:-1])} or {[*KINDS][-1]}.")
    name: RunnerName = key("", "Name of the runner; empty means its kind.")
    folder: Folder = key("", "Folder it runs in; empty means the top of the workspace.")
    args: Arguments = key((), "Extra arguments for the tool.")
    command: Command | None = key(None, "For kind command: a shell command, or a list of arguments without a shell.")
    junit: WorkspaceFile = key(
        "", "For kind command: JUnit XML that it writes, relative to folder; otherwise its exit code counts."
    )
    env: Environment = key({}, "Its own environment variables.", json_schema_extra={"additionalProperties": False})

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> RunnerEntry:
        demand = ""
        if self.kind == "command" and self.command is None:
            demand = 'kind "command" needs a command; write command = "…"'
        elif self.kind != "command" and self.command is not None:
            demand = f'command is only for kind "command"; "{self.kind}" takes args'
        elif self.kind != "command" and self.junit:
            demand = f'junit is only for kind "command"; "{self.kind}" does not need it'
        if demand:
            raise PydanticCustomError(PATTERN, "", {"demand": demand})
        return self


Named = RunnerEntry | ServiceSettings


class Config(Section):
    """Settings of watchtest."""

    model_config = ConfigDict(title="watchtest config")

    triggers: TriggerSettings = TriggerSettings()
    watch: WatchSettings = WatchSettings()
    box: BoxSettings = BoxSettings()
    runner: RunnerSettings = RunnerSettings()
    selection: SelectionSettings = SelectionSettings()
    notify: NotifySettings = NotifySettings()
    history: HistorySettings = HistorySettings()
    api: ApiSettings = ApiSettings()
    runners: Annotated[tuple[RunnerEntry, ...], Field(strict=False)] = key(
        (), "Test tools to run instead of the detected ones.", reach=HostReach(RUNS_ON_HOST, other_than([]), Boxes.BARE)
    )
    services: Annotated[tuple[ServiceSettings, ...], Field(strict=False)] = key(
        (),
        "Programs that run in the box alongside the tests.",
        reach=HostReach(RUNS_ON_HOST, other_than([]), Boxes.BARE),
    )

    @field_validator("runners", "services")
    @classmethod
    def _have_different_names(cls, tables: tuple[Named, ...]) -> tuple[Named, ...]:
        names = [table.name or getattr(table, "kind", "") for table in tables]
        twice = next((name for name in names if names.count(name) > 1), "")
        if twice:
            demand = f'two of them are named "{twice}"; give each its own name'
            raise PydanticCustomError(PATTERN, "", {"demand": demand})
        return tables


RUNNERS = "runners"
LISTS = (RUNNERS, "services")
"""The keys that are lists of tables, not sections: [[runners]] and [[services]]."""

SECTIONS: Mapping[str, type[Section]] = {
    name: field.annotation
    for name, field in Config.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}


def keys() -> Mapping[str, FieldInfo]:
    """Return every key by its dotted name, in the order of config.toml."""
    return {f"{name}.{key}": field for name, kind in SECTIONS.items() for key, field in kind.model_fields.items()}


def host_reaches() -> Mapping[str, HostReach]:
    """Return how each key reaches the host, for those that can."""
    fields = {**keys(), **{name: Config.model_fields[name] for name in LISTS}}
    return {name: reach for name, field in fields.items() for reach in field.metadata if isinstance(reach, HostReach)}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema with which editors complete and check a config file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}
