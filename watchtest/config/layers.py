"""Reads one layer of settings: a file, the environment or the command line. The loader combines them.

A layer that cannot be read raises `UnreadableConfig`. For a file, the line of each key is found as well, which tomllib
does not report: the text is split into statements, where a statement ends at the first line with which it parses by
itself. So lines inside a multi-line string or list are never taken for keys.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Literal

from watchtest.config.keys import SECTIONS, keys
from watchtest.config.problems import ConfigProblem, problems_in, suggestion
from watchtest.config.toml_literal import dotted, literal, read_literal

WORKSPACE_FILES = ("watchtest.toml", ".watchtest/config.toml", "pyproject.toml")
"""The first that exists counts."""
USER_FILE = "config.toml"
ENDS = re.compile(r"""[\]}]|\'{3}|"{3}""")
STATEMENT_LIMIT = 200  # lines; a longer list would be parsed again for each line, so its line is not reported
WORK_LIMIT = 2_000_000  # characters parsed


def lines_of_keys(text: str, root: tuple[str, ...] = ()) -> Mapping[tuple[str, ...], int]:
    """Return the line of each section and key below `root`, as far as they can be found. `text` must be valid TOML."""
    lines: dict[tuple[str, ...], int] = {}
    header = ""
    for start, statement in _statements(text, root):
        if statement.lstrip().startswith("["):
            header = statement
        try:
            found: object = tomllib.loads(statement if header == statement else f"{header}\n{statement}")
        except ValueError:
            return lines
        for part in root:
            found = found.get(part) if isinstance(found, dict) else None
        if isinstance(found, dict):
            for section, table in found.items():
                lines.setdefault((section,), start)
                for key in table if isinstance(table, dict) else ():
                    lines.setdefault((section, key), start)
    return lines


def _statements(text: str, root: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    ours = re.compile(r"\s*\[+\s*" + r"\s*\.\s*".join(root) + r"\b")
    inside = not root  # tables of other tools are skipped unread: they may be long
    statement: list[str] = []
    work = 0
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if not statement:
            if root and line.lstrip().startswith("["):
                inside = ours.match(line) is not None
            if not inside or not line.strip() or line.lstrip().startswith("#"):
                continue
        statement.append(line)
        # Only lists and long strings span lines, so parse only where one may end.
        if len(statement) == 1 or ENDS.search(line):
            whole = "\n".join(statement)
            work += len(whole)
            if _is_complete(whole):
                yield number - len(statement) + 1, whole
                statement = []
        if len(statement) >= STATEMENT_LIMIT or work > WORK_LIMIT:
            return


def _is_complete(statement: str) -> bool:
    try:
        tomllib.loads(statement)
    except ValueError:
        return False
    return True


LayerName = Literal["default", "user", "workspace", "environment", "flag"]
FILE_LIMIT = 4 * 1024 * 1024
PYPROJECT_ROOT = ("tool", "watchtest")


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """Where a value comes from: `str()` is `default`, `watchtest.toml:3`, `WATCHTEST_BOX_ENGINE` or `command line`."""

    layer: LayerName
    place: str
    line: int | None = None

    def __str__(self) -> str:
        return self.place if self.line is None else f"{self.place}:{self.line}"


@dataclass(frozen=True, slots=True)
class Layer:
    """The settings of one source. `data` is nested as in TOML: the content of the table `root` in the file."""

    name: LayerName
    place: str
    data: Mapping[str, object]
    root: tuple[str, ...] = ()
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()  # messages about variables that look like misspelled settings

    def origin(self, section: str, key: str = "") -> SettingOrigin:
        """Return the origin of a key, or of a whole section."""
        if self.name == "environment":
            return SettingOrigin(self.name, variable(f"{section}.{key}"))
        return SettingOrigin(self.name, self.place, self.lines.get((section, key) if key else (section,)))

    def problems(self) -> list[str]:
        """Return all problems as messages for the user, in the order of the file."""
        found = sorted(problems_in(self.data), key=self._line_number)
        return [*self.unknown, *map(self._format, found)]

    def _line_number(self, problem: ConfigProblem) -> float:
        path = tuple(map(str, problem.path[:2]))
        return self.lines.get(path, self.lines.get(path[:1], inf))

    def _format(self, problem: ConfigProblem) -> str:
        value = f" = {problem.shown}" if problem.shown else ""
        if self.name == "environment":
            place = variable(".".join(map(str, problem.path[:2]))) + dotted(problem.path[2:])
            return f"{place}{value}: {problem.demand}"
        where = f"{dotted((*self.root, *problem.path))}{value}: " if problem.path else ""
        return f"{self.place}: {where}{problem.demand}"


class UnreadableConfig(Exception):
    """A config file exists but cannot be read. The message is one complete line for the user."""


def file_layer(path: Path, *, name: LayerName, place: str) -> Layer | None:
    """Read a config file. Returns None if it does not exist, or is a pyproject.toml without our table."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_LIMIT + 1)
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise UnreadableConfig(f"{place}: a link to a missing file; fix or remove it") from None
        return None
    except IsADirectoryError:
        raise UnreadableConfig(f"{place}: is a folder, but must be a TOML file") from None
    except OSError as error:
        raise UnreadableConfig(f"{place}: cannot be read: {error.strerror}; check its permissions") from error
    return content_layer(content, name=name, place=place, is_pyproject=path.name == "pyproject.toml")


def content_layer(content: bytes, *, name: LayerName, place: str, is_pyproject: bool) -> Layer | None:
    """Parse the content of a config file. Returns None for a pyproject.toml without our table."""
    if len(content) > FILE_LIMIT:
        raise UnreadableConfig(f"{place}: larger than 4 MiB; this is not a config file")
    text = _decoded(content, place)
    data: object = _parsed(text, place)
    root = PYPROJECT_ROOT if is_pyproject else ()
    for part in root:
        data = data.get(part) if isinstance(data, dict) else None
    if data is None:
        return None
    if not isinstance(data, dict):
        raise UnreadableConfig(f"{place}: {dotted(root)} = {literal(data)}: must be a table; write [{dotted(root)}]")
    return Layer(name, place, data, root, lines_of_keys(text, root))


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """Read WATCHTEST_<SECTION>_<KEY>. Numbers, booleans and lists are written as in TOML, text without quotes."""
    known = {variable(key): key for key in keys()}
    data: dict[str, dict[str, object]] = {}
    unknown: list[str] = []
    for name, text in sorted(environ.items()):
        if name in known:
            section, key = known[name].split(".")
            data.setdefault(section, {})[key] = _environment_value(known[name], text)
        elif meant := _suggest(name, known):
            unknown.append(f"{name}: no such setting; {meant}")
    return Layer("environment", "environment", data, unknown=tuple(unknown))


def flag_layer(flags: Mapping[str, object]) -> Layer:
    """Turn flags, given as dotted key to value, into a layer."""
    data: dict[str, dict[str, object]] = {}
    for dotted_key, value in flags.items():
        section, _, key = dotted_key.partition(".")
        data.setdefault(section, {})[key] = value
    return Layer("flag", "command line", data)


def variable(dotted_key: str) -> str:
    return "WATCHTEST_" + dotted_key.replace(".", "_").upper()


def _environment_value(dotted_key: str, text: str) -> object:
    if isinstance(keys()[dotted_key].default, str) and not text.startswith("["):
        return text
    value = read_literal(text)
    return text if value is None else value


def _suggest(name: str, known: Mapping[str, str]) -> str:
    """Return advice about a variable that looks like a misspelled setting; "" for any other variable."""
    if not name.startswith("WATCHTEST_"):
        return ""
    rest = name.removeprefix("WATCHTEST_")
    section = rest.partition("_")[0].lower()
    meant = suggestion(rest, [other.removeprefix("WATCHTEST_") for other in known], closeness=0.85)
    if meant:
        return f"did you mean WATCHTEST_{meant}?"
    if section in SECTIONS and "_" in rest:
        return f"[{section}] has {', '.join(SECTIONS[section].model_fields)}"
    return ""


def _decoded(content: bytes, place: str) -> str:
    try:
        # tomllib rejects the byte order mark that some editors write; it handles carriage returns itself
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        raise UnreadableConfig(f"{place}:{line}: not UTF-8 (byte 0x{byte:02x}); save the file as UTF-8") from None


def _parsed(text: str, place: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UnreadableConfig(_syntax_error(str(error), text, place)) from None
    except (ValueError, RecursionError):  # a number of thousands of digits; thousands of brackets
        raise UnreadableConfig(f"{place}: not valid TOML: a value in it is too large to read") from None


def _syntax_error(message: str, text: str, place: str) -> str:
    what, _, at = message.partition(" (at ")
    numbers = re.fullmatch(r"line (\d+), column (\d+)\)", at)
    if numbers:
        line, column = int(numbers[1]), int(numbers[2])
    else:  # "end of document"
        line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
    # tomllib quotes the offending character or key, which may be anything
    safe = "".join(letter if letter.isprintable() else "?" for letter in what[:1].lower() + what[1:])
    return f"{place}:{line}:{column}: not valid TOML: {safe}"
