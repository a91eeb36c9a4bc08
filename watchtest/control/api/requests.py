"""What a request may ask for, checked: tests by their names, never arguments, variables or images."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, TypeVar

from watchtest.core.model import Lane, Policy, RunState
from watchtest.views.dashboard.watcher_screen import DEFAULT_HEIGHT, ScreenRequest

BODY_LIMIT = 64 * 1024
CONFIG_LIMIT = 256 * 1024
RUNS_LIMIT, RUNS_DEFAULT = 200, 50
RESULTS_LIMIT, RESULTS_DEFAULT = 5000, 1000
AFTER_LIMIT = 2_000_000_000
CONFIG_FILES = ("watchtest.toml", ".watchtest/config.toml", "pyproject.toml")
TEST_LIMIT = 4096
TEXT_LIMIT = 100
HEIGHT_LIMIT = 1000
CHOSEN_LIMIT = 100_000
PANELS = ("", "help", "why")
CONFIGURED = "configured"
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
POLICIES = (Policy.ALL, Policy.FAILED, Policy.AFFECTED)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_WHOLE = re.compile(r"[0-9]{1,10}", re.ASCII)
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")

Choice = TypeVar("Choice", Lane, Policy, RunState)
Query = list[tuple[str, str]]


class Refusal(Exception):
    """A request that is not followed: an HTTP status, a stable word, why, and what to do instead."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class RunWish:
    """No lane: the highest that is on. Neither tests nor a policy nor anything else: as the lane's policy has it."""

    lane: Lane | None = None
    tests: tuple[str, ...] = ()
    policy: Policy | None = None
    is_again: bool = False
    """The last tests once more."""
    matching: str = ""
    """Known tests with these words in their names."""


@dataclass(frozen=True, slots=True)
class RunsWish:
    """The newest runs, or those before the one that is named; of one lane, in one state."""

    limit: int = RUNS_DEFAULT
    before: str = ""
    lane: Lane | None = None
    state: RunState | None = None


@dataclass(frozen=True, slots=True)
class ResultsWish:
    after: int = 0
    limit: int = RESULTS_DEFAULT


@dataclass(frozen=True, slots=True)
class PolicyWish:
    """No policy: the one that was configured."""

    policy: Policy | None
    lane: Lane | None = None


@dataclass(frozen=True, slots=True)
class ConfigWish:
    text: str
    file: str


def run_wish(body: bytes) -> RunWish:
    members = _members(body, ("lane", "tests", "policy", "again", "matching"))
    tests = members.get("tests")
    if tests is not None and (not isinstance(tests, list) or not tests):
        raise _bad('"tests" must be a list of at least one test', "leave it out to run what the policy says")
    given = [name for name in ("tests", "policy", "again", "matching") if members.get(name) is not None]
    if len(given) > 1:
        raise _bad(f'"{given[0]}" and "{given[1]}" exclude each other', "give one of them")
    is_again = members.get("again")
    if is_again is not None and is_again is not True:
        raise _bad(f'"again" must be true: {_shown(is_again)}', "leave it out to run what the policy says")
    return RunWish(
        _choice(members, "lane", Lane, tuple(Lane)),
        tuple(_test(test) for test in tests or ()),
        _choice(members, "policy", Policy, POLICIES),
        bool(is_again),
        _words(members, "matching"),
    )


def policy_wish(body: bytes) -> PolicyWish:
    members = _members(body, ("policy", "lane"))
    value = members.get("policy")
    if value is None:
        raise _bad('"policy" is missing', f"one of {', '.join((*POLICIES, CONFIGURED))}")
    lane = _choice(members, "lane", Lane, tuple(Lane))
    if value == CONFIGURED:
        return PolicyWish(None, lane)
    return PolicyWish(_choice(members, "policy", Policy, POLICIES), lane)


def screen_wish(query: Query) -> ScreenRequest:
    members = _parameters(query, ("height", "panel", "filter", "typing", "chosen", "after"))
    panel = members.get("panel", "")
    if panel not in PANELS:
        raise _bad(f'"panel": no such panel: {_shown(panel)}', f"one of {', '.join(PANELS[1:])}")
    text = members.get("filter", "")
    if len(text) > TEXT_LIMIT or _CONTROL.search(text):
        raise _bad(f'"filter": not a text of at most {TEXT_LIMIT} printable characters')
    return ScreenRequest(
        _number(members, "height", DEFAULT_HEIGHT, 1, HEIGHT_LIMIT),
        panel,
        text,
        bool(_number(members, "typing", 0, 0, 1)),
        _number(members, "chosen", 0, 0, CHOSEN_LIMIT) if "chosen" in members else None,
        _number(members, "after", 0, 0, AFTER_LIMIT),
    )


def _words(members: dict[str, Any], key: str) -> str:
    value = members.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or not value.strip() or len(value) > TEXT_LIMIT or _CONTROL.search(value):
        raise _bad(f'"{key}": not a text of 1 to {TEXT_LIMIT} printable characters: {_shown(value)}')
    return value


def lane_wish(body: bytes) -> Lane | None:
    return _choice(_members(body, ("lane",)), "lane", Lane, tuple(Lane))


def why_wish(query: Query) -> tuple[str, Lane | None]:
    """A test or a file, and the lane that is asked."""
    members = _parameters(query, ("what", "lane"))
    if "what" not in members:
        raise _bad('the query must be like "what=tests/test_a.py::test_b&lane=save"', "lane may be left out")
    return _test(members["what"]), _choice(members, "lane", Lane, tuple(Lane))


def runs_wish(query: Query) -> RunsWish:
    members = _parameters(query, ("limit", "before", "lane", "state"))
    before = members.get("before")
    if before is not None and not RUN_ID.fullmatch(before):
        raise _bad(f'"before": not the id of a run: {_shown(before)}', "it is the `next` of the answer before")
    return RunsWish(
        _number(members, "limit", RUNS_DEFAULT, 1, RUNS_LIMIT),
        before or "",
        _choice(members, "lane", Lane, tuple(Lane)),
        _choice(members, "state", RunState, tuple(RunState)),
    )


def results_wish(query: Query) -> ResultsWish:
    members = _parameters(query, ("after", "limit"))
    return ResultsWish(
        _number(members, "after", 0, 0, AFTER_LIMIT), _number(members, "limit", RESULTS_DEFAULT, 1, RESULTS_LIMIT)
    )


def config_wish(body: bytes) -> ConfigWish:
    members = _members(body, ("text", "file"))
    text, file = members.get("text"), members.get("file", CONFIG_FILES[0])
    if not isinstance(text, str):
        raise _bad('"text" must be the text of a config file', 'send {"text": "[box]\\nengine = …"}')
    if file not in CONFIG_FILES:
        raise _bad(f'"file": no such config file: {_shown(file)}', f"one of {', '.join(CONFIG_FILES)}")
    return ConfigWish(text, file)


def lane_query(query: Query) -> Lane | None:
    return _choice(_parameters(query, ("lane",)), "lane", Lane, tuple(Lane))


def no_query(query: Query) -> None:
    _parameters(query, ())


def no_wish(body: bytes) -> None:
    _members(body, ())


def run_id(text: str) -> str:
    if not RUN_ID.fullmatch(text):
        raise Refusal(404, "no_such_run", "not the id of a run", "`watchtest history list` shows them")
    return text


def _test(test: object) -> str:
    """One test, or a file or folder of tests. What a runner could take for an option or a list of options is none."""
    if not isinstance(test, str) or not test.strip():
        raise _bad(f"not a test: {_shown(test)}", "name it as results do: path/to/test_file.py::test_name")
    if len(test) > TEST_LIMIT:
        raise _bad(f"a test of {len(test)} characters: {TEST_LIMIT} is the limit")
    try:
        test.encode()
    except UnicodeEncodeError:
        raise _bad(f"not valid Unicode: {_shown(test)}") from None
    file = test.partition("::")[0]
    if _CONTROL.search(test) or test.startswith(("-", "@")):
        raise _bad(f"not a test: {_shown(test)}", "control characters and a leading - or @ are not allowed")
    if file.startswith(("/", "\\")) or _DRIVE.match(file) or ".." in re.split(r"[\\/]", file):
        raise _bad(f"outside of the workspace: {_shown(test)}", "paths are relative to the workspace")
    return test


def _parameters(query: Query, allowed: tuple[str, ...]) -> dict[str, Any]:
    """Each at most once, and none that nobody reads."""
    members = dict(query)
    unknown = sorted(members.keys() - set(allowed))
    if unknown:
        hint = f"allowed: {', '.join(allowed)}" if allowed else "this request has none"
        raise _bad(f"unknown parameter {_shown(unknown[0])}", hint)
    if len(members) != len(query):
        raise _bad("a parameter is given twice", "give each of them once")
    return dict(members)


def _number(members: dict[str, Any], key: str, otherwise: int, least: int, most: int) -> int:
    text = members.get(key)
    if text is None:
        return otherwise
    if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
        raise _bad(f'"{key}": not a whole number from {least} to {most}: {_shown(text)}')
    return int(text)


def _choice(members: dict[str, Any], key: str, kind: type[Choice], choices: tuple[Choice, ...]) -> Choice | None:
    value = members.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or value not in choices:
        raise _bad(f'"{key}": no such {key}: {_shown(value)}', f"one of {', '.join(choices)}")
    return kind(value)


def _members(body: bytes, allowed: tuple[str, ...]) -> dict[str, Any]:
    """The members of a JSON object; no body is an object without any."""
    if not body.strip():
        return {}
    try:
        members = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _bad(f"the body is not JSON: {type(error).__name__}") from error
    if not isinstance(members, dict):
        raise _bad("the body must be a JSON object")
    unknown = sorted(members.keys() - set(allowed))
    if unknown:
        hint = f"allowed: {', '.join(allowed)}" if allowed else "this request needs no body"
        raise _bad(f"unknown member {_shown(unknown[0])}", hint)
    return members


def _bad(message: str, hint: str = "") -> Refusal:
    return Refusal(400, "bad_request", message, hint)


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
