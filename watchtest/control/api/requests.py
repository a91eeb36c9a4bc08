"""Parses requests into the models that describe them, or refuses them with a reason."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # a watcher that receives no requests does not load pydantic's models
    from pydantic import BaseModel

BODY_LIMIT = 64 * 1024
CONFIG_LIMIT = 256 * 1024
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
QUOTED_LIMIT = 100

Model = TypeVar("Model", bound="BaseModel")


class Refusal(Exception):
    """The watcher refuses a request: an HTTP status, a stable code, the reason and what to do instead."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint

    def document(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message, "hint": self.hint}


def stopping_refusal() -> Refusal:
    return Refusal(503, "leaving", "the watcher is stopping", "start a new one with `watchtest watch`")


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


def quoted(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= QUOTED_LIMIT else f"{text[:QUOTED_LIMIT]}…"


def _validated(model: type[Model], members: dict[str, Any], noun: str, hint_if_none: str) -> Model:
    from pydantic import ValidationError

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
