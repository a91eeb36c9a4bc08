"""What is wrong with the settings, in words that say what to write instead.

Finds problems; does not know which file or variable they stand in. pydantic's own texts never leave this module.

What is wrong with `[[runners]]` and `[[services]]`, in words that say what to write: the settings with depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from watchtest.config.keys import (
    LISTS,
    NOT_TEXT,
    ORDER,
    RUNNERS,
    SECTIONS,
    SHAPE,
    Config,
    Ready,
    RunnerChoice,
    RunnerKind,
    Service,
    keys,
)
from watchtest.config.toml_literal import literal, read_literal, shortened

PROBLEMS_LIMIT = 200
"""Each is compared with every key that may have been meant; nobody reads more."""
TABLES = (*SECTIONS, *LISTS)
NOUNS = {"box.engine": "engine", "triggers.save": "policy"}  # elsewhere it is a "value"
LISTS_TOLD = {"box.setup": '"auto" or a list of commands', "notify.hook": "a shell command or a list of words"}
TYPES = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "finite_number": "must be a finite number",
    "string_unicode": NOT_TEXT,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """`path` is section, key and place in a list, empty for a whole file; `shown` is the value as TOML, empty for a
    whole section."""

    path: tuple[str | int, ...]
    shown: str
    demand: str


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two keys, each right by itself: `low` must not exceed `high`."""

    low: str
    high: str


def problems_in(data: Mapping[str, object]) -> list[Problem]:
    """Of one layer by itself. Contradictions are left to the merged settings: another layer may solve them."""
    found = [error for error in _errors(data) if error["type"] != ORDER]
    problems = [_problem(error) for error in found[:PROBLEMS_LIMIT]]
    if len(found) > PROBLEMS_LIMIT:
        problems.append(Problem((), "", f"{len(found) - PROBLEMS_LIMIT} more problems; is this a config file?"))
    return problems


def contradictions_in(data: Mapping[str, object]) -> list[Contradiction]:
    contexts = [error["ctx"] for error in _errors(data) if error["type"] == ORDER]
    return [Contradiction(context["low"], context["high"]) for context in contexts]


def suggestion(word: str, choices: Iterable[str], closeness: float = 0.6) -> str:
    """The choice that was probably meant, or nothing."""
    spellings = {choice.lower(): choice for choice in choices}
    close = get_close_matches(word.lower(), spellings, n=1, cutoff=closeness)
    return spellings[close[0]] if close else ""


def _errors(data: Mapping[str, object]) -> list[ErrorDetails]:
    try:
        Config.model_validate(data)
    except ValidationError as error:
        return error.errors(include_url=False)
    return []


def _problem(error: ErrorDetails) -> Problem:
    location, value = error["loc"], error["input"]
    if location[0] in LISTS:
        return _table_problem(error, plain_path(location), value)
    # After section and key, pydantic also names the half of a union; only a place in a list helps a reader.
    path = (*location[:2], *(part for part in location[2:] if isinstance(part, int)))
    whole_section = len(path) == 1 and isinstance(value, dict | list)
    return Problem(path, "" if whole_section else shortened(value), _demand(error, path, value))


def _table_problem(error: ErrorDetails, path: tuple[str | int, ...], value: object) -> Problem:
    is_shown = error["type"] != "missing" and not isinstance(value, dict | list)
    if error["type"] == "extra_forbidden":
        names = siblings(path)
        demand = "unknown key; " + _meant(suggestion(str(path[-1]), names), f"{owner(path)} has {', '.join(names)}")
    else:
        demand = table_demand(error["type"], path, value) or _demand(error, path, value)
    return Problem(path, shortened(value) if is_shown else "", demand)


def _demand(error: ErrorDetails, path: tuple[str | int, ...], value: object) -> str:
    context: dict[str, Any] = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            return _unknown(path, value)
        case "model_type":
            return f"must be a section; write [{path[0]}] on a line of its own"
        case "literal_error":
            return _wrong_choice(".".join(map(str, path)), value)
        case "tuple_type":
            return _wrong_list(".".join(map(str, path)), value)
        case "string_type":
            return "must be text" + (f"; write {shortened(literal(value))}" if _is_scalar(value) else "")
        case "greater_than":
            return f"must be above {context['gt']:g}"
        case "greater_than_equal":
            return f"must be at least {context['ge']:.0f}"
        case "less_than_equal":
            return f"must be at most {context['le']:.0f}"
        case kind if kind == SHAPE:
            return str(context["demand"])
        case kind if kind in TYPES:
            return TYPES[kind] + _unquoted(kind, value)
        case kind:
            return f"is not accepted ({kind})"


def _unknown(path: tuple[str | int, ...], value: object) -> str:
    names = [str(part) for part in path]
    if len(names) == 1 and isinstance(value, dict):
        return "unknown section; " + _meant(suggestion(names[0], TABLES), f"the sections are {', '.join(TABLES)}")
    siblings = list(SECTIONS[names[0]].model_fields) if len(names) == 2 else []
    elsewhere = [key for key in keys() if key.split(".")[1] == names[-1]]
    meant = next(iter(elsewhere), "") or suggestion(names[-1], siblings)
    rest = f"[{names[0]}] has {', '.join(siblings)}" if siblings else f"the sections are {', '.join(TABLES)}"
    return "unknown key; " + _meant(meant, rest)


def _wrong_choice(key: str, value: object) -> str:
    if key == "box.setup":
        return f'must be "auto" or a list of commands; write [{shortened(value)}]'
    choices = [str(choice) for choice in get_args(keys()[key].annotation)]
    listed = ", ".join(literal(choice) for choice in choices[:-1]) + f" or {literal(choices[-1])}"
    if not isinstance(value, str):
        return f"must be {listed}"
    return f"no such {NOUNS.get(key, 'value')}; " + _meant(suggestion(value, choices), f"choose {listed}")


def _wrong_list(key: str, value: object) -> str:
    demand = f"must be {LISTS_TOLD.get(key, 'a list')}"
    return demand + (f"; write [{shortened(value)}]" if isinstance(value, str) else "")


def _meant(word: str, otherwise: str) -> str:
    return f"did you mean {literal(word)}?" if word else otherwise


def _is_scalar(value: object) -> bool:
    return not isinstance(value, dict | list | tuple)


def _unquoted(kind: str, value: object) -> str:
    """`"300"` where 300 was meant: the slip that strictness is there to tell."""
    if isinstance(value, float) and kind == "int_type" and value.is_integer():
        return f"; write {value:.0f}"
    if not isinstance(value, str):
        return ""
    meant = read_literal(value.strip())
    fits = {
        "bool_type": isinstance(meant, bool),
        "int_type": isinstance(meant, int) and not isinstance(meant, bool),
        "float_type": isinstance(meant, int | float) and not isinstance(meant, bool) and isfinite(meant),
    }
    return f"; write {literal(meant)} without quotes" if fits.get(kind) else ""


TAGS = ("word", "list", "[key]")
LIST_WORDS = {
    "restart_on": '"auto" or a list of globs',
    "command": "a shell command or a list of words",
    "args": "a list",
}


def plain_path(location: Sequence[str | int]) -> tuple[str | int, ...]:
    """Without the halves of unions that pydantic names, too. The names of variables are the user's own."""
    own = 4 if len(location) > 2 and location[2] == "env" else 3
    return (*location[:own], *(part for part in location[own:] if part not in TAGS))


def table_demand(kind: str, path: Sequence[str | int], value: object) -> str:
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
            return f"must be {LIST_WORDS[name]}" + (f"; write [{shortened(value)}]" if isinstance(value, str) else "")
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
