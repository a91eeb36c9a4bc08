"""What is wrong with `[[services]]`, in words that say what to write: the one part of the settings with depth."""

from __future__ import annotations

from collections.abc import Sequence

from watchtest.config.literal import shortened
from watchtest.config.model import Ready, Service

TAGS = ("word", "list", "[key]")
LISTS = {"restart_on": '"auto" or a list of globs', "command": "a shell command or a list of words"}


def plain_path(location: Sequence[str | int]) -> tuple[str | int, ...]:
    """Without the halves of unions that pydantic names, too. The names of variables are the user's own."""
    own = 4 if len(location) > 2 and location[2] == "env" else 3
    return (*location[:own], *(part for part in location[own:] if part not in TAGS))


def demand(kind: str, path: Sequence[str | int], value: object) -> str:
    """What is asked for at `path`; nothing where the words of other settings do."""
    name = str(path[-1])
    match kind, len(path):
        case "tuple_type", 1:
            return "must be a list of tables; write [[services]] above each service"
        case "model_type", 2:
            return "must be a table; write [[services]] above each service"
        case "model_type", _:
            return "must be a table like { tcp = 8000, timeout_s = 30 }"
        case "dict_type", _:
            return 'must be a table like { NAME = "value" }'
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
    return list((Service if len(path) <= 3 else Ready).model_fields)


def owner(path: Sequence[str | int]) -> str:
    return "a service" if len(path) <= 3 else "ready"
