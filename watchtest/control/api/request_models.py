"""The bodies and queries of API requests, which parse and check them. The OpenAPI document is generated from them."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from watchtest.control.refusal import Refusal
from watchtest.core.model import Lane, RunState
from watchtest.core.text import ID_LIMIT
from watchtest.views.dashboard.watcher_screen import DEFAULT_HEIGHT

TEXT_LIMIT = 100
QUOTED_LIMIT = 100
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DIGITS = re.compile(r"[0-9]{1,10}", re.ASCII)
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


Model = TypeVar("Model", bound=BaseModel)


def quoted(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= QUOTED_LIMIT else f"{text[:QUOTED_LIMIT]}…"


def _invalid(message: str, hint: str = "") -> PydanticCustomError:
    # Braces are doubled because pydantic formats the message as a template.
    return PydanticCustomError("invalid", message.replace("{", "{{").replace("}", "}}"), {"hint": hint})


def _check_test(test: object) -> object:
    """Accept a test, or a file or folder of tests. A runner must not be able to mistake it for an option."""
    if not isinstance(test, str) or not test.strip():
        raise _invalid(f"not a test: {quoted(test)}", "use an id as results show it: path/to/test_file.py::test_name")
    if len(test) > ID_LIMIT:
        raise _invalid(f"{len(test)} characters are more than the limit of {ID_LIMIT}")
    try:
        test.encode()
    except UnicodeEncodeError:
        raise _invalid(f"not valid Unicode: {quoted(test)}") from None
    file = test.partition("::")[0]
    if _CONTROL.search(test) or test.startswith(("-", "@")):
        raise _invalid(f"not a test: {quoted(test)}", "control characters and a leading - or @ are not allowed")
    if file.startswith(("/", "\\")) or _DRIVE.match(file) or ".." in re.split(r"[\\/]", file):
        raise _invalid(f"outside the workspace: {quoted(test)}", "use a path relative to the workspace")
    return test


def _check_tests(tests: object) -> object:
    if tests is not None and (not isinstance(tests, list) or not tests):
        raise _invalid("must be a list of at least one test", "omit it to run what the policy selects")
    return tests


def _check_run_id(run: object) -> object:
    if not isinstance(run, str) or not RUN_ID.fullmatch(run):
        raise _invalid(f"not a run id: {quoted(run)}", "use `next` of the previous answer")
    return run


def _check_words(text: object) -> object:
    if not isinstance(text, str) or not text.strip() or len(text) > TEXT_LIMIT or _CONTROL.search(text):
        raise _invalid(f"must have 1 to {TEXT_LIMIT} printable characters: {quoted(text)}")
    return text


def _check_printable(text: str) -> str:
    if _CONTROL.search(text):
        raise _invalid(f"must have at most {TEXT_LIMIT} printable characters: {quoted(text)}")
    return text


def _check_integer(text: object) -> object:
    if isinstance(text, str) and not _DIGITS.fullmatch(text):
        raise _invalid(f"not a whole number: {quoted(text)}")
    return text


QueryInteger = Annotated[int, BeforeValidator(_check_integer)]
After = Annotated[int, Field(ge=0, le=2_000_000_000), BeforeValidator(_check_integer)]
# For the schema only: pydantic's regular expressions do not support look-ahead.
TEST_PATTERN = r"^(?!.*(^|[\\/])\.\.([\\/]|$))(?![A-Za-z]:[\\/])[^\s\x00-\x1f\x7f-\x9f@/\\-][^\x00-\x1f\x7f-\x9f]*$"
RunId = Annotated[str, Field(pattern=f"^{RUN_ID.pattern}$")]
TestName = Annotated[
    str,
    BeforeValidator(_check_test),
    Field(
        min_length=1,
        max_length=ID_LIMIT,
        json_schema_extra={"pattern": TEST_PATTERN},
        description="The id of a test as results show it, or a file or folder of tests, relative to the workspace.",
    ),
]
Words = Annotated[
    str,
    BeforeValidator(_check_words),
    Field(
        min_length=1,
        max_length=TEXT_LIMIT,
        json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"},
    ),
]
TopLaneByDefault = Annotated[
    Lane | None, Field(description="The lane; by default the highest one that is on: save, then stage, then commit.")
]
_CHOICES = {"tests": "array", "policy": "string", "again": "boolean", "matching": "string"}
"""The ways to choose tests; they exclude each other."""
_EXCLUSIONS: list[Any] = [
    {"not": {"required": [one, other], "properties": {one: {"type": _CHOICES[one]}, other: {"type": _CHOICES[other]}}}}
    for one, other in combinations(_CHOICES, 2)
]


def component_name(name: str) -> str:
    """Return the name of a model class in the OpenAPI document: `RunModel` is published as `Run`."""
    return name.removesuffix("Model")


class ApiModel(BaseModel):
    model_config = ConfigDict(extra="forbid", model_title_generator=lambda model: component_name(model.__name__))


class RunRequest(ApiModel):
    """Which tests to run, chosen in at most one of these ways. By default the policy of the lane chooses."""

    model_config = ConfigDict(json_schema_extra={"allOf": _EXCLUSIONS})

    lane: TopLaneByDefault = None
    tests: Annotated[Annotated[list[TestName], Field(min_length=1)] | None, BeforeValidator(_check_tests)] = None
    policy: Literal["all", "failed", "affected"] | None = None
    again: Literal[True] | None = Field(default=None, description="Run the tests of the last run again.")
    matching: Words | None = Field(
        default=None, description="Run the known tests whose names contain all of these words."
    )

    @model_validator(mode="after")
    def _check_choices(self) -> Self:
        given = [name for name in _CHOICES if getattr(self, name) is not None]
        if len(given) > 1:
            raise _invalid(f'"{given[0]}" and "{given[1]}" exclude each other', "give only one of them")
        return self


class PolicyRequest(ApiModel):
    """Which tests a change runs from now on. `configured` returns to the policy of the settings."""

    policy: Literal["all", "failed", "affected", "configured"]
    lane: TopLaneByDefault = None


class LaneRequest(ApiModel):
    lane: Lane | None = Field(default=None, description="The lane; by default all lanes.")


class LookRequest(ApiModel):
    lane: TopLaneByDefault = None


class LookQuery(LookRequest):
    """The same parameter in a query."""


class NothingModel(ApiModel):
    """An empty object. The body may also be omitted."""


class ConfigRequest(ApiModel):
    text: str = Field(description="The content of a config file, in TOML.")
    file: Literal["watchtest.toml", ".watchtest/config.toml", "pyproject.toml"] = Field(
        default="watchtest.toml", description="The file to read it as; problems are reported under this name."
    )


class RunsQuery(ApiModel):
    limit: QueryInteger = Field(default=50, ge=1, le=200, description="The maximum number of runs to return.")
    before: Annotated[RunId, BeforeValidator(_check_run_id)] | None = Field(
        default=None, description="Return only runs older than this one: `next` of the previous answer."
    )
    lane: Lane | None = Field(default=None, description="Return only runs of this lane.")
    state: RunState | None = Field(default=None, description="Return only runs in this state.")


class ResultsQuery(ApiModel):
    after: After = Field(default=0, description="Return only results after this number: `next` of the previous answer.")
    limit: QueryInteger = Field(default=1000, ge=1, le=5000, description="The maximum number of results to return.")


class ScreenQuery(ApiModel):
    height: QueryInteger = Field(default=DEFAULT_HEIGHT, ge=1, le=1000, description="The number of rows.")
    panel: Literal["", "help", "why"] = ""
    filter: Annotated[str, AfterValidator(_check_printable)] = Field(
        default="",
        max_length=TEXT_LIMIT,
        json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f-\x9f]*$"},
        description="Show only tests whose names contain all of these words.",
    )
    typing: QueryInteger = Field(default=0, ge=0, le=1, description="1 while the user is still typing the filter.")
    chosen: Annotated[int, Field(ge=0, le=100_000), BeforeValidator(_check_integer)] | None = Field(
        default=None, description="The index of the failure to show in full, starting at 0."
    )
    after: After = Field(default=0, description="Wait up to a second for a screen that is newer than this `seq`.")


class WhyQuery(ApiModel):
    what: TestName = Field(description="The id of a test, or the path of a file, relative to the workspace.")
    lane: TopLaneByDefault = None


def parse_body(model: type[Model], body: bytes) -> Model:
    """Return the model of a JSON body; an empty body is an empty object."""
    try:
        members = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError) as error:
        raise _bad_request(f"the body is not JSON: {type(error).__name__}") from error
    if not isinstance(members, dict):
        raise _bad_request("the body must be a JSON object")
    return _validated(model, members, "member", "this request takes no body")


def parse_query(model: type[Model], query: list[tuple[str, str]]) -> Model:
    """Return the model of the query parameters; each may be given only once."""
    members = dict(query)
    parsed = _validated(model, members, "parameter", "this request takes no parameters")
    if len(members) != len(query):
        raise _bad_request("a parameter is given twice", "give each parameter only once")
    return parsed


def _validated(model: type[Model], members: dict[str, Any], noun: str, hint_if_none: str) -> Model:
    unknown = sorted(members.keys() - model.model_fields.keys())
    if unknown:
        hint = f"allowed: {', '.join(model.model_fields)}" if model.model_fields else hint_if_none
        raise _bad_request(f"unknown {noun} {quoted(unknown[0])}", hint)
    try:
        return model.model_validate(members)
    except ValidationError as error:
        raise _refusal(error.errors()[0]) from error


def _refusal(error: Any) -> Refusal:
    """Describe the first error that pydantic found."""
    key, value, context = "".join(error["loc"][:1]), quoted(error["input"]), error.get("ctx", {})
    match error["type"]:
        case "invalid":  # raised by our own validators, with a message of theirs
            return _bad_request(f'"{key}": {error["msg"]}' if key else error["msg"], context["hint"])
        case "missing":
            return _bad_request(f'"{key}" is missing')
        case "enum" | "literal_error":
            choices = context["expected"].replace("'", "").replace(" or ", ", ").removeprefix(", ")
            return _bad_request(f'"{key}": no such {key}: {value}', f"one of {choices}")
        case _:
            return _bad_request(f'"{key}": {error["msg"].removeprefix("Input ")}: {value}')


def _bad_request(message: str, hint: str = "") -> Refusal:
    return Refusal(400, "bad_request", message, hint)
