"""Reads requests into the models that describe them, or refuses them with a reason."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # a watcher that is never asked anything does not pay for pydantic's models
    from pydantic import BaseModel

BODY_LIMIT = 64 * 1024
CONFIG_LIMIT = 256 * 1024
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
SHOWN_LIMIT = 100

Model = TypeVar("Model", bound="BaseModel")


class Refusal(Exception):
    """A request that is not followed: an HTTP status, a stable code, the reason, and what to do instead."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint


def read_body(model: type[Model], body: bytes) -> Model:
    """Return the JSON object of a body; an empty body is an empty object."""
    try:
        members = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError) as error:
        raise _bad(f"the body is not JSON: {type(error).__name__}") from error
    if not isinstance(members, dict):
        raise _bad("the body must be a JSON object")
    return _validated(model, members, "member", "this request needs no body")


def read_query(model: type[Model], query: list[tuple[str, str]]) -> Model:
    """Return the parameters of a query, each given at most once."""
    members = dict(query)
    request = _validated(model, members, "parameter", "this request has none")
    if len(members) != len(query):
        raise _bad("a parameter is given twice", "give each of them once")
    return request


def run_id(text: str) -> str:
    if not RUN_ID.fullmatch(text):
        raise Refusal(404, "no_such_run", "not the id of a run", "`watchtest history list` shows them")
    return text


def shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= SHOWN_LIMIT else f"{text[:SHOWN_LIMIT]}…"


def _validated(model: type[Model], members: dict[str, Any], noun: str, none_allowed: str) -> Model:
    from pydantic import ValidationError

    unknown = sorted(members.keys() - model.model_fields.keys())
    if unknown:
        hint = f"allowed: {', '.join(model.model_fields)}" if model.model_fields else none_allowed
        raise _bad(f"unknown {noun} {shown(unknown[0])}", hint)
    try:
        return model.model_validate(members)
    except ValidationError as error:
        raise _refusal(error.errors()[0]) from error


def _refusal(error: Any) -> Refusal:
    """Say what is wrong with a request in our own words; `error` is the first finding of pydantic."""
    key, value, context = "".join(error["loc"][:1]), shown(error["input"]), error.get("ctx", {})
    match error["type"]:
        case "refused":  # by a check of ours, which has brought its own words
            return _bad(f'"{key}": {error["msg"]}' if key else error["msg"], context["hint"])
        case "missing":
            return _bad(f'"{key}" is missing')
        case "enum" | "literal_error":
            choices = context["expected"].replace("'", "").replace(" or ", ", ").removeprefix(", ")
            return _bad(f'"{key}": no such {key}: {value}', f"one of {choices}")
        case _:
            return _bad(f'"{key}": {error["msg"].removeprefix("Input ")}: {value}')


def _bad(message: str, hint: str = "") -> Refusal:
    return Refusal(400, "bad_request", message, hint)
