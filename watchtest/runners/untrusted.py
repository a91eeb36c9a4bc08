"""Converts data from the box into safe values: of limited size and the right type, without terminal sequences."""

from __future__ import annotations

import posixpath
import re
from typing import Any

from watchtest.agent.rows import short_id
from watchtest.core.model import Location
from watchtest.core.text import FAILURE_TEXT_LIMIT, ID_LIMIT

DURATION_LIMIT_S = 10_000_000.0
LINES = 1_000_000_000
COLUMNS = 1_000_000
SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
NAME_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def text(raw: object) -> str:
    """Return lines of text, cut to FAILURE_TEXT_LIMIT characters."""
    if not isinstance(raw, str):
        return ""
    return CONTROL.sub("", SEQUENCE.sub("", raw[: 2 * FAILURE_TEXT_LIMIT]))[:FAILURE_TEXT_LIMIT]


def name(raw: object) -> str:
    """Return one line that can be part of an id, or "" if the value is not suitable."""
    return NAME_CONTROL.sub(" ", short_id(raw)) if isinstance(raw, str) else ""


def tables(raw: object) -> list[dict[str, Any]]:
    """Return the objects in a list; none if it is not a list."""
    return [item for item in raw if isinstance(item, dict)] if isinstance(raw, list) else []


def seconds(raw: object, per_second: float = 1.0) -> float:
    if not isinstance(raw, int | float) or isinstance(raw, bool) or not 0 <= raw < DURATION_LIMIT_S * per_second:
        return 0.0
    return float(raw) / per_second


def number(raw: object, limit: int = LINES) -> int | None:
    """Return a line or column, counted from 1, or None."""
    if isinstance(raw, str):
        raw = int(raw) if raw.isascii() and raw.isdigit() and len(raw) < 12 else None
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and 0 < raw < limit else None


def inside(path: str, root: str, folder: str) -> str | None:
    """Return a path of the box relative to the workspace, or None if it is outside. It may be relative to `folder`."""
    if not path or "\x00" in path or len(path) > ID_LIMIT:
        return None
    if path.startswith("/"):
        base = root.rstrip("/") + "/"
        if not root or not path.startswith(base):
            return None
        path = path[len(base) :]
    else:
        path = posixpath.join(folder, path)
    found = posixpath.normpath(path)
    return None if found.startswith(("/", "../")) or found in ("..", ".") else found


def location(path: str, line: object, root: str, folder: str) -> Location | None:
    """Return a line of a file in the workspace, or None."""
    file, line_number = inside(path, root, folder), number(line)
    return Location(file, line_number) if file is not None and line_number is not None else None


def first_line(message: str) -> str:
    return next((line.strip() for line in message.splitlines() if line.strip()), "")
