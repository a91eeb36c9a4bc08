"""Loads the settings of a workspace: flag > environment > workspace file > user file > default.

Each value keeps its origin. All problems of all layers are reported together in one ConfigError, one line each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import get_args

from watchtest.config.keys import LISTS, Config, keys
from watchtest.config.layers import (
    USER_FILE,
    WORKSPACE_FILES,
    Layer,
    LayerName,
    SettingOrigin,
    UnreadableConfig,
    content_layer,
    environment_layer,
    file_layer,
    flag_layer,
)
from watchtest.config.problems import contradictions_in
from watchtest.config.toml_literal import dotted, literal, shortened
from watchtest.core.events import Event, SourceChanged
from watchtest.core.state import State
from watchtest.errors import ConfigError, WatchtestError
from watchtest.workspace.user_dirs import UserDirs

DEFAULT = SettingOrigin("default", "default")
NO_TABLE = "has no [tool.watchtest] table; add one or name another file"
RESTART = "restart to apply them (`watchtest restart`, or quit and start again)"
RANKS: tuple[LayerName, ...] = get_args(LayerName)


@dataclass(frozen=True, slots=True)
class Project:
    """What a command works on, all of which comes from outside the program."""

    workspace: Path
    config: Config
    environ: Mapping[str, str]
    dirs: UserDirs


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The settings, the origin of every dotted key and list, and the files that were read, if any."""

    config: Config
    origins: Mapping[str, SettingOrigin]
    file: Path | None
    user_file: Path | None


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
    user_files = [] if user_folder is None else [(user_folder / USER_FILE, str(user_folder / USER_FILE))]
    user, user_file = _first_found(user_files, "user", lines)
    if explicit is None:
        candidates = [(workspace / name, name) for name in WORKSPACE_FILES]
        own, own_file = _first_found(candidates, "workspace", lines)
    else:
        own, own_file = _explicit(workspace, explicit, lines)
    layers = [layer for layer in (user, own, environment_layer(environ), flag_layer(flags)) if layer]
    foreign = _user_only_problems(own, user_folder) if own is not None and explicit is None else []
    config, origins = _resolved(layers, lines, foreign)
    return LoadedConfig(config, MappingProxyType(origins), own_file, user_file)


def check_text(text: str, file: str) -> list[str]:
    """Return the problems that `load` would report for a file with this name and text."""
    lines: list[str] = []
    layer: Layer | None = None
    try:
        content = text.encode("utf-8", "surrogatepass")  # a lone surrogate is reported as invalid UTF-8
        layer = content_layer(content, name="workspace", place=file, is_pyproject=Path(file).name == "pyproject.toml")
        if layer is None:
            lines.append(f"{file}: {NO_TABLE}")
    except UnreadableConfig as error:
        lines.append(str(error))
    try:
        _resolved([layer] if layer else [], lines, _user_only_problems(layer, None) if layer else [])
    except ConfigError as error:
        return error.message.split("\n")
    return []


def _resolved(layers: Sequence[Layer], lines: list[str], foreign: list[str]) -> tuple[Config, dict[str, SettingOrigin]]:
    """Combine the layers. Raises ConfigError if one has a problem, or if they contradict each other."""
    for layer in layers:
        lines += layer.problems()
    lines += foreign
    if lines:
        raise ConfigError("\n".join(lines))
    data, origins = _merge(layers)
    lists = _merge_lists(layers, origins)
    contradictions = contradictions_in(data)
    if contradictions:
        raise ConfigError("\n".join(_contradiction(low, high, data, origins) for low, high in contradictions))
    return Config.model_validate(data | lists), origins


def _first_found(
    candidates: Iterable[tuple[Path, str]], name: LayerName, lines: list[str]
) -> tuple[Layer | None, Path | None]:
    for path, place in candidates:
        try:
            layer = file_layer(path, name=name, place=place)
        except UnreadableConfig as error:
            lines.append(str(error))
            return None, path
        if layer:
            return layer, path
    return None, None


def _explicit(workspace: Path, path: Path, lines: list[str]) -> tuple[Layer | None, Path]:
    place = str(path.relative_to(workspace)) if path.is_relative_to(workspace) else str(path)
    layer, found = _first_found([(path, place)], "workspace", lines)
    if layer is None and found is None:
        lines.append(
            f"{place}: {NO_TABLE}" if path.exists() else f"{place}: no such file; give the path of a TOML file"
        )
    return layer, path


def _user_only_problems(own: Layer, user_folder: Path | None) -> list[str]:
    """Report settings that only the user may make: a project must not run commands outside the box."""
    notify = own.data.get("notify")
    hook = notify.get("hook") if isinstance(notify, Mapping) else None
    if not hook:
        return []
    yours = f"{user_folder / USER_FILE} or " if user_folder is not None else ""
    where = f"{own.place}: {dotted((*own.root, 'notify', 'hook'))} = {shortened(hook)}"
    why = "runs on your machine, not in the box, so a project must not set it"
    return [f"{where}: {why}; move it to {yours}WATCHTEST_NOTIFY_HOOK"]


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
