"""Settings of a workspace: flag > environment > workspace file > user file > default, each value with its origin.

Every problem of every source is reported at once, one line each, in a ConfigError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from watchtest.config.keys import LISTS, Config, keys
from watchtest.config.layers import (
    Layer,
    LayerName,
    Origin,
    Unreadable,
    content_layer,
    environment_layer,
    file_layer,
    flag_layer,
)
from watchtest.config.problems import Contradiction, contradictions_in
from watchtest.config.toml_literal import dotted, literal, shortened
from watchtest.errors import ConfigError

WORKSPACE_FILES = ("watchtest.toml", ".watchtest/config.toml", "pyproject.toml")
USER_FILE = "config.toml"
DEFAULT = Origin("default", "default")
NO_TABLE = "has no [tool.watchtest] table; add one or name another file"
RANKS: tuple[LayerName, ...] = ("default", "user", "workspace", "environment", "flag")


@dataclass(frozen=True, slots=True)
class Loaded:
    """`origins` has every dotted key and list. `file` is the workspace's own, `user_file` the user's, if any."""

    config: Config
    origins: Mapping[str, Origin]
    file: Path | None
    user_file: Path | None


def load(
    workspace: Path,
    *,
    explicit: Path | None,
    environ: Mapping[str, str],
    user_folder: Path | None,
    flags: Mapping[str, object],
) -> Loaded:
    """`explicit` (`--config`) stands in for the files of the workspace. No `user_folder`, no user file."""
    lines: list[str] = []
    user, user_file = _first_found(_user_candidates(user_folder), "user", lines)
    if explicit is None:
        candidates = [(workspace / name, name) for name in WORKSPACE_FILES]
        own, own_file = _first_found(candidates, "workspace", lines)
    else:
        own, own_file = _explicit(workspace, explicit, lines)
    layers = [layer for layer in (user, own, environment_layer(environ), flag_layer(flags)) if layer]
    foreign = _not_for_projects(own, user_folder) if own is not None and explicit is None else []
    config, origins = _settled(layers, lines, foreign)
    return Loaded(config, MappingProxyType(origins), own_file, user_file)


def check_text(text: str, file: str) -> list[str]:
    """What is wrong with a file of this name that holds this text, as `load` would say it; nothing: it is right."""
    lines: list[str] = []
    layer: Layer | None = None
    try:
        content = text.encode("utf-8", "surrogatepass")  # half a character is no UTF-8, and is said to be none
        layer = content_layer(content, name="workspace", place=file, is_pyproject=Path(file).name == "pyproject.toml")
        if layer is None:
            lines.append(f"{file}: {NO_TABLE}")
    except Unreadable as error:
        lines.append(str(error))
    try:
        _settled([layer] if layer else [], lines, _not_for_projects(layer, None) if layer else [])
    except ConfigError as error:
        return error.message.split("\n")
    return []


def _settled(layers: Sequence[Layer], lines: list[str], foreign: list[str]) -> tuple[Config, dict[str, Origin]]:
    """What the layers add up to, unless there is something wrong with one of them, or with all of them together."""
    for layer in layers:
        lines += layer.problems()
    lines += foreign
    if lines:
        raise ConfigError("\n".join(lines))
    data, origins = _merged(layers)
    lists = _lists(layers, origins)
    contradictions = contradictions_in(data)
    if contradictions:
        raise ConfigError("\n".join(_contradiction(found, data, origins) for found in contradictions))
    return Config.model_validate(data | lists), origins


def _user_candidates(folder: Path | None) -> list[tuple[Path, str]]:
    return [] if folder is None else [(folder / USER_FILE, str(folder / USER_FILE))]


def _first_found(
    candidates: Iterable[tuple[Path, str]], name: LayerName, lines: list[str]
) -> tuple[Layer | None, Path | None]:
    for path, place in candidates:
        try:
            layer = file_layer(path, name=name, place=place)
        except Unreadable as error:
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


def _not_for_projects(own: Layer, user_folder: Path | None) -> list[str]:
    """What runs outside the box is for the user alone to name: a project may have come from anywhere."""
    notify = own.data.get("notify")
    hook = notify.get("hook") if isinstance(notify, Mapping) else None
    if not hook:
        return []
    yours = f"{user_folder / USER_FILE} or " if user_folder is not None else ""
    where = f"{own.place}: {dotted((*own.root, 'notify', 'hook'))} = {shortened(hook)}"
    why = "runs on your machine, not in the box, so no project may set it"
    return [f"{where}: {why}; move it to {yours}WATCHTEST_NOTIFY_HOOK"]


def _merged(layers: Iterable[Layer]) -> tuple[dict[str, dict[str, object]], dict[str, Origin]]:
    """A higher layer replaces a value whole: lists are not joined. The data are known to be sections of keys."""
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


def _lists(layers: Sequence[Layer], origins: dict[str, Origin]) -> dict[str, object]:
    """Of each list all of the highest layer that has any; the services of two layers are not mixed."""
    found: dict[str, object] = {}
    for name in LISTS:
        having = [layer for layer in layers if name in layer.data]
        origins[name] = having[-1].origin(name) if having else DEFAULT
        found |= {name: having[-1].data[name]} if having else {}
    return found


def _contradiction(
    found: Contradiction, data: Mapping[str, Mapping[str, object]], origins: Mapping[str, Origin]
) -> str:
    """Said of the key that was set last: the other one was there before."""

    def value(dotted_key: str) -> str:
        section, key = dotted_key.split(".")
        return literal(data.get(section, {}).get(key, keys()[dotted_key].default))

    low, high = found.low, found.high
    if RANKS.index(origins[low].layer) > RANKS.index(origins[high].layer):
        blamed, other, bound = low, high, "at most"
    else:
        blamed, other, bound = high, low, "at least"
    return (
        f"{origins[blamed].place}: {blamed} = {value(blamed)}: "
        f"must be {bound} {other}, which is {value(other)} ({origins[other]})"
    )
