"""What is wrong with `[[runners]]` and `[[services]]`, in words that say what to write: the settings with depth."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import get_args

from watchtest.config.keys import RUNNERS, Ready, RunnerChoice, RunnerKind, Service
from watchtest.config.toml_literal import literal, shortened

TAGS = ("word", "list", "[key]")
LISTS = {
    "restart_on": '"auto" or a list of globs',
    "command": "a shell command or a list of words",
    "args": "a list",
}


def plain_path(location: Sequence[str | int]) -> tuple[str | int, ...]:
    """Without the halves of unions that pydantic names, too. The names of variables are the user's own."""
    own = 4 if len(location) > 2 and location[2] == "env" else 3
    return (*location[:own], *(part for part in location[own:] if part not in TAGS))


def demand(kind: str, path: Sequence[str | int], value: object) -> str:
    """What is asked for at `path`; nothing where the words of other settings do."""
    name = str(path[-1])
    match kind, len(path):
        case "tuple_type", 1:
            return f"must be a list of tables; write [[{name}]] above each {name[:-1]}"
        case "model_type", 2:
            return f"must be a table; write [[{path[0]}]] above each {str(path[0])[:-1]}"
        case "model_type", _:
            return "must be a table like { tcp = 8000, timeout_s = 30 }"
        case "dict_type", _:
            return 'must be a table like { NAME = "value" }'
        case (("missing" | "literal_error"), _) if name == "kind":
            return _kinds(value if kind == "literal_error" else None)
        case "missing", _:
            return f'is missing; write {name} = "…"'
        case "too_short", _:
            return "must not be empty"
        case "tuple_type" | "literal_error", _:
            return f"must be {LISTS[name]}" + (f"; write [{shortened(value)}]" if isinstance(value, str) else "")
        case "shape", 4 if path[2] == "env" and value == name:
            return "must be the name of an environment variable: letters, digits and _"
        case _:
            return ""


def siblings(path: Sequence[str | int]) -> list[str]:
    """The keys that may stand where `path` does."""
    if path[0] == RUNNERS:
        return list(RunnerChoice.model_fields)
    return list((Service if len(path) <= 3 else Ready).model_fields)


def owner(path: Sequence[str | int]) -> str:
    if path[0] == RUNNERS:
        return "a runner"
    return "a service" if len(path) <= 3 else "ready"


def _kinds(value: object) -> str:
    kinds = [str(kind) for kind in get_args(RunnerKind)]
    listed = ", ".join(map(literal, kinds[:-1])) + f" or {literal(kinds[-1])}"
    if value is None:
        return f"is missing; choose {listed}"
    meant = get_close_matches(value, kinds, n=1) if isinstance(value, str) else []
    return "no such runner; " + (f"did you mean {literal(meant[0])}?" if meant else f"choose {listed}")
