"""Formats values as TOML that is safe to print: one line, without control characters, of limited length."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, time

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def literal(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value)
        case date() | time():
            return value.isoformat()
        case Mapping():
            return "{…}" if value else "{}"  # no setting has such a value, and it may be nested deeply
        case Sequence():
            return "[" + ", ".join(literal(item) for item in value) + "]"
        case _:
            return repr(value)


def inline(value: object) -> str:
    """Format a checked value in full, with tables and lists."""
    match value:
        case Mapping():
            return "{" + ", ".join(f"{dotted([key])} = {inline(each)}" for key, each in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(inline, value)) + "]"
        case _:
            return literal(value)


def read_literal(text: str) -> object | None:
    """Parse a single TOML value. Returns None if the text is anything else."""
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return None
    return found["value"] if len(found) == 1 else None


def shortened(value: object, limit: int = 80) -> str:
    """Format a value for the middle of a message."""
    text = literal(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def dotted(path: Sequence[str | int]) -> str:
    """Format a path: `("box", "environment", 0)` becomes `box.environment[0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if BARE_KEY.fullmatch(part) else shortened(part))
    return text


def _quoted(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(character if character.isprintable() else _escaped(character) for character in quoted)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
