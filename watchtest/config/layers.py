"""What one source of settings says by itself: a file, the environment, the command line.

A source that cannot be read at all raises `Unreadable`, with the one line to show. How sources add up is asked in load.

The line of a TOML file on which each key stands; tomllib tells values but not places.

Reads one statement at a time: a statement ends with the first line at which it parses by itself, so that lines inside
a multi-line string or list are never taken for keys. Only asked about text that parses as a whole.
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
from watchtest.config.problems import Problem, problems_in, suggestion
from watchtest.config.toml_literal import dotted, literal, read_literal

ENDS = re.compile(r"""[\]}]|\'{3}|"{3}""")
LONGEST_STATEMENT = 200  # lines; a longer list is left without a place rather than parsed again for each of them
MOST_WORK = 2_000_000  # characters read; nobody writes so much by hand


def lines_of_keys(text: str, root: tuple[str, ...] = ()) -> Mapping[tuple[str, ...], int]:
    """Path below `root` (a section, or a section and a key) to its line. A key it cannot place is left out."""
    places: dict[tuple[str, ...], int] = {}
    header = ""
    for start, statement in _statements(text, root):
        if statement.lstrip().startswith("["):
            header = statement
        try:
            found: object = tomllib.loads(statement if header == statement else f"{header}\n{statement}")
        except ValueError:
            return places
        for part in root:
            found = found.get(part) if isinstance(found, dict) else None
        if isinstance(found, dict):
            for section, table in found.items():
                places.setdefault((section,), start)
                for key in table if isinstance(table, dict) else ():
                    places.setdefault((section, key), start)
    return places


def _statements(text: str, root: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    ours = re.compile(r"\s*\[+\s*" + r"\s*\.\s*".join(root) + r"\b")
    inside = not root  # what other tools keep in the file is passed over unread: it may be long
    statement: list[str] = []
    work = 0
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if not statement:
            if root and line.lstrip().startswith("["):
                inside = ours.match(line) is not None
            if not inside or not line.strip() or line.lstrip().startswith("#"):
                continue
        statement.append(line)
        # Lines can be broken inside of a list or a long string alone: only where one may end, it is worth a look.
        if len(statement) == 1 or ENDS.search(line):
            whole = "\n".join(statement)
            work += len(whole)
            if _is_whole(whole):
                yield number - len(statement) + 1, whole
                statement = []
        if len(statement) >= LONGEST_STATEMENT or work > MOST_WORK:
            return


def _is_whole(statement: str) -> bool:
    try:
        tomllib.loads(statement)
    except ValueError:
        return False
    return True


LayerName = Literal["default", "user", "workspace", "environment", "flag"]
LARGEST_FILE = 4 * 1024 * 1024
PYPROJECT_ROOT = ("tool", "watchtest")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: `str()` is `default`, `watchtest.toml:3`, `WATCHTEST_BOX_ENGINE` or `command line`."""

    layer: LayerName
    place: str
    line: int | None = None

    def __str__(self) -> str:
        return self.place if self.line is None else f"{self.place}:{self.line}"


@dataclass(frozen=True, slots=True)
class Layer:
    """`data` is nested as in TOML: what stands below `root` in the file."""

    name: LayerName
    place: str
    data: Mapping[str, object]
    root: tuple[str, ...] = ()
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()  # problems found while reading: variables that are nearly ours

    def origin(self, section: str, key: str = "") -> Origin:
        """Of a key, or of a whole section."""
        if self.name == "environment":
            return Origin(self.name, variable(f"{section}.{key}"))
        return Origin(self.name, self.place, self.lines.get((section, key) if key else (section,)))

    def problems(self) -> list[str]:
        """All of them as the user reads them, in the order of the file."""
        found = sorted(problems_in(self.data), key=self._line_number)
        return [*self.unknown, *map(self._told, found)]

    def _line_number(self, problem: Problem) -> float:
        path = tuple(map(str, problem.path[:2]))
        return self.lines.get(path, self.lines.get(path[:1], inf))

    def _told(self, problem: Problem) -> str:
        value = f" = {problem.shown}" if problem.shown else ""
        if self.name == "environment":
            place = variable(".".join(map(str, problem.path[:2]))) + dotted(problem.path[2:])
            return f"{place}{value}: {problem.demand}"
        where = f"{dotted((*self.root, *problem.path))}{value}: " if problem.path else ""
        return f"{self.place}: {where}{problem.demand}"


class Unreadable(Exception):
    """A file that is there but tells nothing; the text is one whole line for the user."""


def file_layer(path: Path, *, name: LayerName, place: str) -> Layer | None:
    """None: no such file, or a pyproject.toml without our table."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise Unreadable(f"{place}: a link to a file that is missing; mend or remove it") from None
        return None
    except IsADirectoryError:
        raise Unreadable(f"{place}: a folder; a TOML file is needed there") from None
    except OSError as error:
        raise Unreadable(f"{place}: cannot be read: {error.strerror}; check its permissions") from error
    return content_layer(content, name=name, place=place, is_pyproject=path.name == "pyproject.toml")


def content_layer(content: bytes, *, name: LayerName, place: str, is_pyproject: bool) -> Layer | None:
    """What a file with this content says. None: a pyproject.toml without our table."""
    if len(content) > LARGEST_FILE:
        raise Unreadable(f"{place}: larger than 4 MiB; this is no config file")
    text = _decoded(content, place)
    data: object = _parsed(text, place)
    root = PYPROJECT_ROOT if is_pyproject else ()
    for part in root:
        data = data.get(part) if isinstance(data, dict) else None
    if data is None:
        return None
    if not isinstance(data, dict):
        raise Unreadable(f"{place}: {dotted(root)} = {literal(data)}: must be a table; write [{dotted(root)}]")
    return Layer(name, place, data, root, lines_of_keys(text, root))


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """WATCHTEST_<SECTION>_<KEY>. Numbers, true, false and lists are written as in TOML, text without quotes."""
    known = {variable(key): key for key in keys()}
    data: dict[str, dict[str, object]] = {}
    unknown: list[str] = []
    for name, text in sorted(environ.items()):
        if name in known:
            section, key = known[name].split(".")
            data.setdefault(section, {})[key] = _environment_value(known[name], text)
        elif meant := _nearly_ours(name, known):
            unknown.append(f"{name}: no such setting; {meant}")
    return Layer("environment", "environment", data, unknown=tuple(unknown))


def flag_layer(flags: Mapping[str, object]) -> Layer:
    """Dotted key to value; None is a flag that was not given."""
    data: dict[str, dict[str, object]] = {}
    for dotted_key, value in flags.items():
        section, _, key = dotted_key.partition(".")
        if value is not None:
            data.setdefault(section, {})[key] = value
    return Layer("flag", "command line", data)


def variable(dotted_key: str) -> str:
    return "WATCHTEST_" + dotted_key.replace(".", "_").upper()


def _environment_value(dotted_key: str, text: str) -> object:
    if isinstance(keys()[dotted_key].default, str) and not text.startswith("["):
        return text
    value = read_literal(text)
    return text if value is None else value


def _nearly_ours(name: str, known: Mapping[str, str]) -> str:
    """What to say of a variable that looks like a setting and is none. Other WATCHTEST_ variables are not settings."""
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
        # tomllib minds the mark that some editors put first, and carriage returns are left for it to judge
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        raise Unreadable(f"{place}:{line}: not UTF-8 (byte 0x{byte:02x}); save the file as UTF-8") from None


def _parsed(text: str, place: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(_syntax_error(str(error), text, place)) from None
    except (ValueError, RecursionError):  # a number of thousands of digits; thousands of brackets
        raise Unreadable(f"{place}: not valid TOML: a value in it is too large to read") from None


def _syntax_error(message: str, text: str, place: str) -> str:
    what, _, at = message.partition(" (at ")
    numbers = re.fullmatch(r"line (\d+), column (\d+)\)", at)
    if numbers:
        line, column = int(numbers[1]), int(numbers[2])
    else:  # "end of document"
        line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
    # tomllib quotes the character or key it minds: it may be anything
    safe = "".join(letter if letter.isprintable() else "?" for letter in what[:1].lower() + what[1:])
    return f"{place}:{line}:{column}: not valid TOML: {safe}"
