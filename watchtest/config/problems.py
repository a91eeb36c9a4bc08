"""Finds problems in settings and says what to write instead.

It does not know the file or variable that a value comes from. pydantic's own messages never leave this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from watchtest.config import keys
from watchtest.config.toml_literal import literal, read_literal, shortened
from watchtest.runners.registry import KINDS

PROBLEMS_LIMIT = 200
"""More would not be read, and each is compared with every key to find a suggestion."""
TABLES = (*keys.SECTIONS, *keys.LISTS)
NOUNS = {"box.engine": "engine", "triggers.save": "policy"}  # others are called "value"
LIST_DEMANDS = {"box.setup": '"auto" or a list of commands', "notify.hook": "a shell command or a list of arguments"}
TYPES = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "finite_number": "must be a finite number",
    "string_unicode": keys.NOT_TEXT,
}


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One problem. `path` is section, key and list index, or empty for the whole file; `shown` is the value as TOML."""

    path: tuple[str | int, ...]
    shown: str
    demand: str


def problems_in(data: Mapping[str, object]) -> list[ConfigProblem]:
    """Return the problems of one layer. Contradictions are not included: another layer may resolve them."""
    found = [error for error in _errors(data) if error["type"] != keys.ORDER]
    problems = [_problem(error) for error in found[:PROBLEMS_LIMIT]]
    if len(found) > PROBLEMS_LIMIT:
        problems.append(ConfigProblem((), "", f"{len(found) - PROBLEMS_LIMIT} more problems; is this a config file?"))
    return problems


def contradictions_in(data: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return pairs of keys that are valid by themselves, but the value of the first exceeds that of the second."""
    contexts = [error["ctx"] for error in _errors(data) if error["type"] == keys.ORDER]
    return [(context["low"], context["high"]) for context in contexts]


def suggestion(word: str, choices: Iterable[str], closeness: float = 0.6) -> str:
    """Return the choice that was probably meant, or ""."""
    spellings = {choice.lower(): choice for choice in choices}
    close = get_close_matches(word.lower(), spellings, n=1, cutoff=closeness)
    return spellings[close[0]] if close else ""


def _errors(data: Mapping[str, object]) -> list[ErrorDetails]:
    try:
        keys.Config.model_validate(data)
    except ValidationError as error:
        return error.errors(include_url=False)
    return []


def _problem(error: ErrorDetails) -> ConfigProblem:
    location, value = error["loc"], error["input"]
    if location[0] in keys.LISTS:
        return _table_problem(error, _plain_path(location), value)
    # After section and key, pydantic also names the half of a union; only a list index helps the reader.
    path = (*location[:2], *(part for part in location[2:] if isinstance(part, int)))
    whole_section = len(path) == 1 and isinstance(value, dict | list)
    return ConfigProblem(path, "" if whole_section else shortened(value), _demand(error, path, value))


def _table_problem(error: ErrorDetails, path: tuple[str | int, ...], value: object) -> ConfigProblem:
    is_shown = error["type"] != "missing" and not isinstance(value, dict | list)
    if error["type"] == "extra_forbidden":
        owner, table = _table_at(path)
        names = list(table.model_fields)
        demand = "unknown key; " + _meant(suggestion(str(path[-1]), names), f"{owner} has {', '.join(names)}")
    else:
        demand = _table_demand(error["type"], path, value) or _demand(error, path, value)
    return ConfigProblem(path, shortened(value) if is_shown else "", demand)


def _demand(error: ErrorDetails, path: tuple[str | int, ...], value: object) -> str:
    context: dict[str, Any] = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            return _unknown(path, value)
        case "model_type":
            return f"must be a section; write [{path[0]}] on its own line"
        case "literal_error":
            return _wrong_choice(".".join(map(str, path)), value)
        case "tuple_type":
            return _wrong_list(LIST_DEMANDS.get(".".join(map(str, path)), "a list"), value)
        case "string_type":
            is_scalar = not isinstance(value, dict | list | tuple)
            return "must be text" + (f"; write {shortened(literal(value))}" if is_scalar else "")
        case "greater_than":
            return f"must be greater than {context['gt']:g}"
        case "greater_than_equal":
            return f"must be at least {context['ge']:.0f}"
        case "less_than_equal":
            return f"must be at most {context['le']:.0f}"
        case kind if kind == keys.PATTERN:
            return str(context["demand"])
        case kind if kind in TYPES:
            return TYPES[kind] + _unquoted(kind, value)
        case kind:
            return f"is not accepted ({kind})"


def _unknown(path: tuple[str | int, ...], value: object) -> str:
    names = [str(part) for part in path]
    if len(names) == 1 and isinstance(value, dict):
        return "unknown section; " + _meant(suggestion(names[0], TABLES), f"the sections are {', '.join(TABLES)}")
    known = list(keys.SECTIONS[names[0]].model_fields) if len(names) == 2 else []
    elsewhere = [key for key in keys.keys() if key.split(".")[1] == names[-1]]  # noqa: SIM118  a function
    meant = next(iter(elsewhere), "") or suggestion(names[-1], known)
    rest = f"[{names[0]}] has {', '.join(known)}" if known else f"the sections are {', '.join(TABLES)}"
    return "unknown key; " + _meant(meant, rest)


def _wrong_choice(key: str, value: object) -> str:
    if key == "box.setup":
        return f'must be "auto" or a list of commands; write [{shortened(value)}]'
    choices = [str(choice) for choice in get_args(keys.keys()[key].annotation)]
    if not isinstance(value, str):
        return f"must be {_listed(choices)}"
    return _no_such(NOUNS.get(key, "value"), value, choices)


def _no_such(noun: str, value: str, choices: Sequence[str]) -> str:
    return f"no such {noun}; " + _meant(suggestion(value, choices), f"choose {_listed(choices)}")


def _listed(choices: Sequence[str]) -> str:
    return ", ".join(map(literal, choices[:-1])) + f" or {literal(choices[-1])}"


def _wrong_list(demand: str, value: object) -> str:
    return f"must be {demand}" + (f"; write [{shortened(value)}]" if isinstance(value, str) else "")


def _meant(word: str, otherwise: str) -> str:
    return f"did you mean {literal(word)}?" if word else otherwise


def _unquoted(kind: str, value: object) -> str:
    """Suggest 300 for `"300"`, and the like."""
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


UNION_TAGS = ("word", "list", "[key]")
TABLE_LIST_DEMANDS = {
    "restart_on": '"auto" or a list of globs',
    "command": "a shell command or a list of arguments",
    "args": "a list",
}


def _plain_path(location: Sequence[str | int]) -> tuple[str | int, ...]:
    """Remove pydantic's names for the halves of unions; names of variables, which are the user's, stay."""
    kept = 4 if len(location) > 2 and location[2] == "env" else 3
    return (*location[:kept], *(part for part in location[kept:] if part not in UNION_TAGS))


def _table_demand(kind: str, path: Sequence[str | int], value: object) -> str:
    """Return what a key of a [[…]] table must be; "" if the general message fits."""
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
            is_missing = kind == "missing"
            return f"is missing; choose {_listed([*KINDS])}" if is_missing else _no_such("runner", str(value), [*KINDS])
        case "missing", _:
            return f'is missing; write {name} = "…"'
        case "too_short", _:
            return "must not be empty"
        case "tuple_type" | "literal_error", _:
            return _wrong_list(TABLE_LIST_DEMANDS[name], value)
        case "shape", 4 if path[2] == "env" and value == name:
            return "must be the name of an environment variable: letters, digits and _"
        case _:
            return ""


def _table_at(path: Sequence[str | int]) -> tuple[str, type[keys.Section]]:
    """Return what the table of a key in a list describes, and the keys that are valid in it."""
    if path[0] == keys.RUNNERS:
        return "a runner", keys.RunnerEntry
    return ("a service", keys.ServiceSettings) if len(path) <= 3 else ("ready", keys.ReadySettings)
