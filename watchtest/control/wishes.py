"""What a request may ask for, checked: tests by their names, never arguments, variables or images."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, TypeVar

from watchtest.core.model import Lane, Policy

BODY_LIMIT = 64 * 1024
TEST_LIMIT = 4096
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
POLICIES = (Policy.ALL, Policy.FAILED, Policy.AFFECTED)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")

Choice = TypeVar("Choice", Lane, Policy)


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
    """No lane: the highest that is on. Neither tests nor a policy: as the lane's own policy has it."""

    lane: Lane | None = None
    tests: tuple[str, ...] = ()
    policy: Policy | None = None


def run_wish(body: bytes) -> RunWish:
    members = _members(body, ("lane", "tests", "policy"))
    tests = members.get("tests")
    if tests is not None and (not isinstance(tests, list) or not tests):
        raise _bad('"tests" must be a list of at least one test', "leave it out to run what the policy says")
    policy = _choice(members, "policy", Policy, POLICIES)
    if tests is not None and policy is not None:
        raise _bad('"tests" and "policy" exclude each other', "give one of them")
    return RunWish(_choice(members, "lane", Lane, tuple(Lane)), tuple(_test(test) for test in tests or ()), policy)


def lane_wish(body: bytes) -> Lane | None:
    return _choice(_members(body, ("lane",)), "lane", Lane, tuple(Lane))


def why_wish(query: list[tuple[str, str]]) -> tuple[str, Lane | None]:
    """A test or a file, and the lane that is asked."""
    members: dict[str, Any] = dict(query)
    if set(members) - {"what", "lane"} or not members.get("what"):
        raise _bad('the query must be like "what=tests/test_a.py::test_b&lane=save"', "lane may be left out")
    return _test(members["what"]), _choice(members, "lane", Lane, tuple(Lane))


def lane_query(query: list[tuple[str, str]]) -> Lane | None:
    members: dict[str, Any] = dict(query)
    if set(members) - {"lane"}:
        raise _bad('the query must be like "lane=save"', "or be left out")
    return _choice(members, "lane", Lane, tuple(Lane))


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
