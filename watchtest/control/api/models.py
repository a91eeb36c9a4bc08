"""The requests and answers of the API. Requests are validated by these models, and they make the OpenAPI document."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from watchtest.control.api.requests import RUN_ID, shown
from watchtest.core.model import Lane, Outcome, RunState, Trigger
from watchtest.views.dashboard.watcher_screen import DEFAULT_HEIGHT

AFTER_LIMIT = 2_000_000_000
TEST_LIMIT = 4096
TEXT_LIMIT = 100
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_WHOLE = re.compile(r"[0-9]{1,10}", re.ASCII)
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


def _refused(message: str, hint: str = "") -> PydanticCustomError:
    # Braces are doubled, because pydantic fills templates.
    return PydanticCustomError("refused", message.replace("{", "{{").replace("}", "}}"), {"hint": hint})


def _test(test: object) -> object:
    """Accept a test, or a file or folder of tests. A runner must not be able to take it for an option."""
    if not isinstance(test, str) or not test.strip():
        raise _refused(f"not a test: {shown(test)}", "name it as results do: path/to/test_file.py::test_name")
    if len(test) > TEST_LIMIT:
        raise _refused(f"a test of {len(test)} characters: {TEST_LIMIT} is the limit")
    try:
        test.encode()
    except UnicodeEncodeError:
        raise _refused(f"not valid Unicode: {shown(test)}") from None
    file = test.partition("::")[0]
    if _CONTROL.search(test) or test.startswith(("-", "@")):
        raise _refused(f"not a test: {shown(test)}", "control characters and a leading - or @ are not allowed")
    if file.startswith(("/", "\\")) or _DRIVE.match(file) or ".." in re.split(r"[\\/]", file):
        raise _refused(f"outside of the workspace: {shown(test)}", "paths are relative to the workspace")
    return test


def _tests(tests: object) -> object:
    if tests is not None and (not isinstance(tests, list) or not tests):
        raise _refused("must be a list of at least one test", "leave it out to run what the policy says")
    return tests


def _before(run: object) -> object:
    if not isinstance(run, str) or not RUN_ID.fullmatch(run):
        raise _refused(f"not the id of a run: {shown(run)}", "it is the `next` of the last answer")
    return run


def _words(text: object) -> object:
    if not isinstance(text, str) or not text.strip() or len(text) > TEXT_LIMIT or _CONTROL.search(text):
        raise _refused(f"not a text of 1 to {TEXT_LIMIT} printable characters: {shown(text)}")
    return text


def _printable(text: str) -> str:
    if _CONTROL.search(text):
        raise _refused(f"not a text of at most {TEXT_LIMIT} printable characters: {shown(text)}")
    return text


def _whole(text: object) -> object:
    if isinstance(text, str) and not _WHOLE.fullmatch(text):
        raise _refused(f"not a whole number: {shown(text)}")
    return text


Whole = Annotated[int, BeforeValidator(_whole)]
"""A whole number in a query."""
Time = Annotated[
    str,
    Field(
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$",
        description="UTC, to the millisecond.",
        json_schema_extra={"format": "date-time"},
    ),
]
Count = Annotated[int, Field(ge=0)]
# For the schema only: pydantic's own expressions know no look-ahead.
TEST_PATTERN = r"^(?!.*(^|[\\/])\.\.([\\/]|$))(?![A-Za-z]:[\\/])[^\s\x00-\x1f\x7f-\x9f@/\\-][^\x00-\x1f\x7f-\x9f]*$"
RunId = Annotated[str, Field(pattern=f"^{RUN_ID.pattern}$")]
TestName = Annotated[
    str,
    BeforeValidator(_test),
    Field(
        min_length=1,
        max_length=TEST_LIMIT,
        json_schema_extra={"pattern": TEST_PATTERN},
        description="A test as results name it, or a file or folder of tests, relative to the workspace.",
    ),
]
Words = Annotated[
    str,
    BeforeValidator(_words),
    Field(
        min_length=1,
        max_length=TEXT_LIMIT,
        json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"},
    ),
]
_WAYS = {"tests": "array", "policy": "string", "again": "boolean", "matching": "string"}
_EXCLUDED: list[Any] = [
    {"not": {"required": [one, other], "properties": {one: {"type": _WAYS[one]}, other: {"type": _WAYS[other]}}}}
    for one, other in combinations(_WAYS, 2)
]
"""Ways to name tests that exclude each other."""


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


# -- requests --------------------------------------------------------------------------------------


class RunRequest(Shape):
    """Which tests to run, in one of these ways; with none of them, as the lane's own policy has it."""

    model_config = ConfigDict(json_schema_extra={"allOf": _EXCLUDED})

    lane: Lane | None = Field(default=None, description="The highest that is on, if left out.")
    tests: Annotated[Annotated[list[TestName], Field(min_length=1)] | None, BeforeValidator(_tests)] = None
    policy: Literal["all", "failed", "affected"] | None = None
    again: Literal[True] | None = Field(default=None, description="The last tests once more.")
    matching: Words | None = Field(default=None, description="Known tests with all these words in their names.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        given = [name for name in _WAYS if getattr(self, name) is not None]
        if len(given) > 1:
            raise _refused(f'"{given[0]}" and "{given[1]}" exclude each other', "give one of them")
        return self


class PolicyRequest(Shape):
    """How much a change runs, until told otherwise."""

    policy: Literal["all", "failed", "affected", "configured"]
    lane: Lane | None = Field(default=None, description="The highest that is on, if left out.")


class LaneRequest(Shape):
    lane: Lane | None = Field(default=None, description="All lanes, if left out.")


class LookRequest(Shape):
    lane: Lane | None = Field(default=None, description="The highest that is on, if left out.")


class LookQuery(LookRequest):
    """The same as a query."""


class Nothing(Shape):
    """An empty object, or no body at all."""


class ConfigRequest(Shape):
    text: str = Field(description="The text of a config file, TOML.")
    file: Literal["watchtest.toml", ".watchtest/config.toml", "pyproject.toml"] = Field(
        default="watchtest.toml", description="As which file it is read, and named in what is wrong with it."
    )


class RunsQuery(Shape):
    limit: Whole = Field(default=50, ge=1, le=200, description="The largest number of runs.")
    before: Annotated[RunId, BeforeValidator(_before)] | None = Field(
        default=None, description="Only runs older than this one: `next` of the last answer."
    )
    lane: Lane | None = Field(default=None, description="Only runs of this lane.")
    state: RunState | None = Field(default=None, description="Only runs in this state.")


class ResultsQuery(Shape):
    after: Whole = Field(
        default=0, ge=0, le=AFTER_LIMIT, description="Only results behind this number: `next` of the last answer."
    )
    limit: Whole = Field(default=1000, ge=1, le=5000, description="The largest number of results.")


class ScreenQuery(Shape):
    height: Whole = Field(default=DEFAULT_HEIGHT, ge=1, le=1000, description="The number of rows.")
    panel: Literal["", "help", "why"] = ""
    filter: Annotated[str, AfterValidator(_printable)] = Field(
        default="",
        max_length=TEXT_LIMIT,
        json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f-\x9f]*$"},
        description="Only tests with all these words in their names.",
    )
    typing: Whole = Field(default=0, ge=0, le=1, description="1: the filter is still being typed.")
    chosen: Annotated[int, Field(ge=0, le=100_000), BeforeValidator(_whole)] | None = Field(
        default=None, description="Which failure is shown at length, counted from 0."
    )
    after: Whole = Field(
        default=0,
        ge=0,
        le=AFTER_LIMIT,
        description="Answer once there is something newer than this `seq`, or in a moment.",
    )


class WhyQuery(Shape):
    what: TestName = Field(description="A test by its id, or a file by its path in the workspace.")
    lane: Lane | None = Field(default=None, description="The highest that is on, if left out.")


# -- answers ---------------------------------------------------------------------------------------


class Refused(Shape):
    """Why a request is not followed."""

    code: str = Field(description="A stable word.")
    message: str
    hint: str = Field(description="What to do instead; may be empty.")


class Health(Shape):
    status: Literal["ok"]
    version: str
    pid: Count
    workspace: str


class Lanes(Shape):
    save: str | None = None
    stage: str | None = None
    commit: str | None = None


class Info(Shape):
    version: str
    pid: Count
    workspace: str
    started_at: Time
    python: str
    platform: str
    lanes: Lanes = Field(description="The policy of each lane; null: it is off.")
    socket: str | None = Field(description="The unix socket.")
    url: str | None = Field(description="Where it listens on TCP; null: nowhere.")
    token_file: str | None = Field(description="The file that holds the token for it.")
    limits: dict[str, int]


class Schemas(Shape):
    """JSON Schemas, draft 2020-12."""

    status: dict[str, Any] = Field(description="Of GET /status and of the status file.")
    config: dict[str, Any] = Field(description="Of the settings.")


class Counts(Shape):
    passed: Count
    failed: Count
    error: Count
    skipped: Count
    xfailed: Count
    xpassed: Count


class Progress(Shape):
    done: Count
    total: Count | None = Field(description="null: not known.")


class Run(Shape):
    """A run as it stands, or as it ended."""

    id: RunId
    lane: Lane
    trigger: Trigger
    state: RunState
    ended: bool = Field(description="Whether `state` is its last.")
    stopping: bool = Field(description="It was called off, and is being ended.")
    reason: str | None = Field(description="Why it ended as it did; of one that waits, what it waits for.")
    successor: str | None = Field(description="The run that goes on in its place.")
    queued_at: Time | None
    ended_at: Time | None
    tree: str | None = Field(description="Git tree id of exactly what it tests.")
    selected: Count | None = Field(description="How many tests it was asked to run; null: all, or not decided yet.")
    because: str | None = Field(description="Why these.")
    counts: Counts
    progress: Progress


class Runs(Shape):
    runs: list[Run] = Field(description="Newest first.")
    next: str | None = Field(description="What to send as `before` for older ones; null: there are none.")


class Place(Shape):
    file: str
    line: int = Field(ge=1)


class Failure(Shape):
    """The fields of a failure in the status file."""

    kind: str
    file: str | None = Field(description="Relative to the workspace, POSIX.")
    line: Annotated[int, Field(ge=1)] | None = Field(description="The deepest frame in the test's own file.")
    column: Annotated[int, Field(ge=1)] | None
    source_line: str | None
    message: str
    crash: Place | None = Field(description="The deepest frame in the workspace.")
    text: str = Field(description="The end of the report of the failure.")
    output: str = Field(description="The end of what the test printed.")


class Result(Shape):
    number: int = Field(ge=1)
    test: str
    outcome: Outcome
    duration_s: float = Field(ge=0)
    failure: Failure | None


class Results(Shape):
    """Results in the order in which they came; the last result of a test is the one that counts."""

    run: RunId
    state: RunState
    ended: bool = Field(description="The run has ended. With `more` false, these were the last results.")
    reset: bool = Field(description="`after` cannot be gone on from: this is the beginning, forget what came before.")
    results: list[Result]
    next: Count = Field(description="What to send as `after` for those that follow.")
    more: bool = Field(description="More results are there already.")


class Pause(Shape):
    paused: bool


class Paused(Shape):
    lanes: dict[str, Pause]


class Rest(Shape):
    lane: Lane
    settled: bool
    waits_for: str | None = Field(description="Why it does not come to rest by itself.")


class PolicySet(Shape):
    lane: Lane
    policy: str = Field(description="What counts now.")
    configured: str


class Row(Shape):
    """A row of the dashboard: text with styles from the left and at the right edge, a bar in between."""

    left: list[tuple[str, str]] = []
    right: list[tuple[str, str]] = []
    band: str = ""
    bar: float | None = None
    groups: list[list[tuple[str, str]]] = []
    wraps: bool = Field(default=False, description="The left text may go on where empty rows follow.")


class Notice(Shape):
    """What the watcher can tell by no terminal of its own, and by no desktop."""

    number: Count = Field(description="Another one for each notice.")
    kind: str
    title: str
    lines: list[str]
    lane: Lane
    verdict: str
    form: str | None = Field(description="How the user wants to be told; null: as the terminal knows it.")


class Screen(Shape):
    """The dashboard as the watcher itself would draw it; what `watchtest attach` shows."""

    seq: Count
    lane: Lane
    rows: list[Row]
    choices: Count = Field(description="How many failures can be chosen from.")
    place: Place | None = Field(description="Where the chosen failure is, or the first.")
    paused: bool
    override: str | None = Field(description="A policy that was asked for by hand.")
    red: Count
    notice: Notice | None = Field(description="The live notice, for the terminal that shows this screen.")


class Output(Shape):
    text: str = Field(description="All that the failures and the runner have said.")


class Explained(Shape):
    """Of a test: why it ran or did not, and what it touches. Of a file: the tests that depend on it."""

    model_config = ConfigDict(extra="allow")

    lane: Lane
    kind: Literal["test", "file"]


class Checked(Shape):
    valid: bool
    problems: list[str] = Field(description="Exactly what `watchtest config validate FILE` says.")
