"""Loads the settings of a workspace: flag > environment > workspace file > user file > default.

Each layer is read and checked by itself, then they are combined; each value keeps its origin. All problems of all
layers are reported together in one ConfigError, one line each.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Literal, get_args

from watchtest.config.keys import LISTS, SECTIONS, Config, host_reaches, keys
from watchtest.config.problems import ConfigProblem, contradictions_in, problems_in, suggestion
from watchtest.config.toml_lines import lines_of_keys
from watchtest.config.toml_literal import dotted, inline, literal, read_literal
from watchtest.core.events import Event, SourceChanged
from watchtest.core.state import State
from watchtest.errors import ConfigError, WatchtestError
from watchtest.workspace.consent import HostRequest
from watchtest.workspace.folder import FOLDER, OwnFolder, open_regular
from watchtest.workspace.user_dirs import UserDirs

WORKSPACE_FILES = ("watchtest.toml", ".watchtest/config.toml", "pyproject.toml")
"""The first that exists counts."""
FILE_LIMIT = 4 * 1024 * 1024
NO_TABLE = "has no [tool.watchtest] table; add one or name another file"
RESTART = "restart to apply them (`watchtest restart`, or quit and start again)"
LayerName = Literal["default", "user", "workspace", "environment", "flag"]
RANKS: tuple[LayerName, ...] = get_args(LayerName)


@dataclass(frozen=True, slots=True)
class Project:
    """What a command works on, all of which comes from outside the program."""

    workspace: Path
    config: Config
    environ: Mapping[str, str]
    dirs: UserDirs
    requests: tuple[HostRequest, ...] = ()
    """What the files of the workspace ask of the host."""
    is_trusted: bool = False
    """The user allows all of that, for this command."""


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The settings, the origin of every dotted key and list, and the files that were read, if any."""

    config: Config
    origins: Mapping[str, SettingOrigin]
    file: Path | None
    user_file: Path | None
    requests: tuple[HostRequest, ...] = ()
    """What `file` asks of the host, unless the user has named that file."""


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """Where a value comes from: `str()` is `default`, `watchtest.toml:3`, `WATCHTEST_BOX_ENGINE` or `command line`."""

    layer: LayerName
    place: str
    line: int | None = None

    def __str__(self) -> str:
        return self.place if self.line is None else f"{self.place}:{self.line}"


DEFAULT = SettingOrigin("default", "default")


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
            return SettingOrigin(self.name, _variable(f"{section}.{key}"))
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
            place = _variable(".".join(map(str, problem.path[:2]))) + dotted(problem.path[2:])
            return f"{place}{value}: {problem.demand}"
        where = f"{dotted((*self.root, *problem.path))}{value}: " if problem.path else ""
        return f"{self.place}: {where}{problem.demand}"


def load(
    workspace: Path,
    *,
    explicit: Path | None,
    environ: Mapping[str, str],
    user_folder: Path | None,
    flags: Mapping[str, object],
) -> LoadedConfig:
    """Load and check all layers. `explicit` (`--config`) replaces the files of the workspace. Raises ConfigError."""
    lines: list[str] = []
    user_path = None if user_folder is None else user_folder / "config.toml"
    user, user_file = _first_found([(user_path, str(user_path))] if user_path else [], "user", lines)
    if explicit is None:
        candidates = [(workspace / name, name) for name in WORKSPACE_FILES]
        own, own_file = _first_found(candidates, "workspace", lines, inside=workspace)
    else:
        own, own_file = _explicit(workspace, explicit, lines)
    layers = [layer for layer in (user, own, _environment_layer(environ), _flag_layer(flags)) if layer]
    config, origins = _resolved(layers, lines)
    requests = tuple(_host_requests(own, user, origins)) if own and explicit is None else ()
    return LoadedConfig(config, MappingProxyType(origins), own_file, user_file, requests)


def check_text(text: str, file: str) -> list[str]:
    """Return the problems that `load` would report for a file with this name and text."""
    try:
        # A lone surrogate is reported as invalid UTF-8.
        layer = _content_layer(text.encode("utf-8", "surrogatepass"), "workspace", file)
        if layer is None:
            raise ConfigError(f"{file}: {NO_TABLE}")
        _resolved([layer], [])
    except ConfigError as error:
        return error.message.split("\n")
    return []


def _first_found(
    candidates: Iterable[tuple[Path, str]], name: LayerName, lines: list[str], inside: Path | None = None
) -> tuple[Layer | None, Path | None]:
    """Return the first layer that exists, and its file, which must lie `inside` this folder."""
    for path, place in candidates:
        try:
            layer = _file_layer(path, name, place)
            if layer and inside is not None:
                _check_inside(path, place, inside)
        except ConfigError as error:
            lines.append(error.message)
            return None, path
        if layer:
            return layer, path
    return None, None


def _check_inside(path: Path, place: str, folder: Path) -> None:
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(folder)):
        raise ConfigError(f"{place}: a link to {real}, outside the project; replace it by a file, or use --config")


def _explicit(workspace: Path, path: Path, lines: list[str]) -> tuple[Layer | None, Path]:
    place = str(path.relative_to(workspace)) if path.is_relative_to(workspace) else str(path)
    layer, found = _first_found([(path, place)], "workspace", lines)
    if layer is None and found is None:
        lines.append(
            f"{place}: {NO_TABLE}" if path.exists() else f"{place}: no such file; give the path of a TOML file"
        )
    return layer, path


def _file_layer(path: Path, name: LayerName, place: str) -> Layer | None:
    """Read a config file. Returns None if it does not exist, or is a pyproject.toml without our table."""
    try:
        with _opened(path) as file:
            content = file.read(FILE_LIMIT + 1)
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise ConfigError(f"{place}: a link to a missing file; fix or remove it") from None
        return None
    except IsADirectoryError:
        raise ConfigError(f"{place}: is a folder, but must be a TOML file") from None
    except OSError as error:
        raise ConfigError(f"{place}: cannot be read: {error.strerror}; check its permissions") from error
    return _content_layer(content, name, place)


def _opened(path: Path) -> BinaryIO:
    """Open a config file. One that a repository brings can neither block us nor lead out of our own folder."""
    if path.parent.name == FOLDER:
        return os.fdopen(OwnFolder(path.parent).open(path.name, os.O_RDONLY), "rb")
    return os.fdopen(open_regular(str(path), os.O_RDONLY), "rb") if path.name in WORKSPACE_FILES else path.open("rb")


def _content_layer(content: bytes, name: LayerName, place: str) -> Layer | None:
    """Parse the content of a config file. Returns None for a pyproject.toml without our table."""
    if len(content) > FILE_LIMIT:
        raise ConfigError(f"{place}: larger than 4 MiB; this is not a config file")
    text = _decoded(content, place)
    data: object = _parsed(text, place)
    root = ("tool", "watchtest") if Path(place).name == "pyproject.toml" else ()
    for part in root:
        data = data.get(part) if isinstance(data, dict) else None
    if data is None:
        return None
    if not isinstance(data, dict):
        raise ConfigError(f"{place}: {dotted(root)} = {literal(data)}: must be a table; write [{dotted(root)}]")
    return Layer(name, place, data, root, lines_of_keys(text, root))


def _decoded(content: bytes, place: str) -> str:
    try:
        # tomllib rejects the byte order mark that some editors write; it handles carriage returns itself
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        raise ConfigError(f"{place}:{line}: not UTF-8 (byte 0x{byte:02x}); save the file as UTF-8") from None


def _parsed(text: str, place: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_syntax_error(str(error), text, place)) from None
    except (ValueError, RecursionError):  # a number of thousands of digits; thousands of brackets
        raise ConfigError(f"{place}: not valid TOML: a value in it is too large to read") from None


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


def _environment_layer(environ: Mapping[str, str]) -> Layer:
    """Read WATCHTEST_<SECTION>_<KEY>. Numbers, booleans and lists are written as in TOML, text without quotes."""
    known = {_variable(key): key for key in keys()}
    data: dict[str, dict[str, object]] = {}
    unknown: list[str] = []
    for name, text in sorted(environ.items()):
        if name in known:
            section, key = known[name].split(".")
            data.setdefault(section, {})[key] = _environment_value(known[name], text)
        elif meant := _suggest(name, known):
            unknown.append(f"{name}: no such setting; {meant}")
    return Layer("environment", "environment", data, unknown=tuple(unknown))


def _environment_value(dotted_key: str, text: str) -> object:
    field = keys()[dotted_key]
    if isinstance(field.default, str) and not text.startswith("[") and not _takes_number(field.annotation):
        return text
    value = read_literal(text)
    return text if value is None else value


def _takes_number(annotation: object) -> bool:
    """Return whether a number is one of the values of this type."""
    return annotation in (int, float) or any(map(_takes_number, get_args(annotation)))


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


def _variable(dotted_key: str) -> str:
    return "WATCHTEST_" + dotted_key.replace(".", "_").upper()


def _flag_layer(flags: Mapping[str, object]) -> Layer:
    """Turn flags, given as dotted key to value, into a layer."""
    data: dict[str, dict[str, object]] = {}
    for dotted_key, value in flags.items():
        section, _, key = dotted_key.partition(".")
        data.setdefault(section, {})[key] = value
    return Layer("flag", "command line", data)


def _host_requests(own: Layer, user: Layer | None, origins: Mapping[str, SettingOrigin]) -> Iterator[HostRequest]:
    """Yield the settings of the workspace's own file that go beyond those of the user, and that no flag overrides."""
    for name, reach in host_reaches().items():
        path = name.split(".")
        if origins[name].layer != own.name:
            continue
        value, default = _value_at(own.data, path), () if name in LISTS else keys()[name].default
        if reach.goes_beyond(value, _value_at(user.data if user else {}, path, default)):
            yield HostRequest(name, inline(value), str(origins[name]), reach.why, reach.boxes)


def _value_at(data: Mapping[str, Any], path: Sequence[str], default: object = None) -> Any:
    value: Any = data
    for part in path:
        if part not in value:
            return default
        value = value[part]
    return value


def _resolved(layers: Sequence[Layer], lines: list[str]) -> tuple[Config, dict[str, SettingOrigin]]:
    """Combine the layers. Raises ConfigError if one has a problem, or if they contradict each other."""
    for layer in layers:
        lines += layer.problems()
    if lines:
        raise ConfigError("\n".join(lines))
    data, origins = _merge(layers)
    lists = _merge_lists(layers, origins)
    contradictions = contradictions_in(data)
    if contradictions:
        raise ConfigError("\n".join(_contradiction(low, high, data, origins) for low, high in contradictions))
    return Config.model_validate(data | lists), origins


def _merge(layers: Iterable[Layer]) -> tuple[dict[str, dict[str, object]], dict[str, SettingOrigin]]:
    """Merge the sections. A higher layer replaces a value as a whole; lists are not joined."""
    data: dict[str, dict[str, object]] = {}
    origins = dict.fromkeys(keys(), DEFAULT)
    for layer in layers:
        for section, values in layer.data.items():
            if section in LISTS:
                continue
            assert isinstance(values, Mapping)  # Layer.problems found none
            for key, value in values.items():
                data.setdefault(section, {})[key] = value
                origins[f"{section}.{key}"] = layer.origin(section, key)
    return data, origins


def _merge_lists(layers: Sequence[Layer], origins: dict[str, SettingOrigin]) -> dict[str, object]:
    """Take each list of tables from the highest layer that has it; the lists of two layers are not joined."""
    found: dict[str, object] = {}
    for name in LISTS:
        having = [layer for layer in layers if name in layer.data]
        origins[name] = having[-1].origin(name) if having else DEFAULT
        found |= {name: having[-1].data[name]} if having else {}
    return found


def _contradiction(
    low: str, high: str, data: Mapping[str, Mapping[str, object]], origins: Mapping[str, SettingOrigin]
) -> str:
    """Describe a contradiction as a problem of the key from the higher layer."""

    def value(dotted_key: str) -> str:
        section, key = dotted_key.split(".")
        return literal(data.get(section, {}).get(key, keys()[dotted_key].default))

    if RANKS.index(origins[low].layer) > RANKS.index(origins[high].layer):
        blamed, other, bound = low, high, "at most"
    else:
        blamed, other, bound = high, low, "at least"
    return (
        f"{origins[blamed].place}: {blamed} = {value(blamed)}: "
        f"must be {bound} {other}, which is {value(other)} ({origins[other]})"
    )


@dataclass(slots=True)
class ConfigChangeNotice:
    """A view of the loop: notices that a config file was saved, because a watcher keeps the settings it started with.

    `reload` returns the settings that are in the files now.
    """

    config: Config
    reload: Callable[[], Config]
    say: Callable[[str], None]
    _last: str = ""

    def show(self, _before: State, _after: State, event: Event | None) -> None:
        if isinstance(event, SourceChanged) and event.paths.intersection(WORKSPACE_FILES):
            text = self._notice()
            if text and text != self._last:
                self.say(text)
            self._last = text

    def _notice(self) -> str:
        try:
            is_same = self.reload() == self.config
        except WatchtestError as error:
            return f"the settings have changed, but are invalid: {error.message}"
        return "" if is_same else f"the settings have changed: {RESTART}"
