"""The files of a snapshot that describe a project and its dependencies. Each content is read only once.

An unreadable file that decides about the box is an error: a guess would discard a good box because a file was only half
written.
"""

from __future__ import annotations

import configparser
import functools
import json
import re
import tomllib
from collections.abc import Collection, Mapping
from typing import Any

from watchtest.boxes.protocols import ContentReader
from watchtest.core.model import EntryKind, Snapshot
from watchtest.errors import ConfigError

MAX_TEXTS = 256
NEAR = ("requirements/", ".devcontainer/", ".github/workflows/")
"""Folders that are searched besides the root: deeper files are mostly samples and vendored code."""
INITIALS = "".join(folder[0] for folder in NEAR)
GLOB_PARTS = re.compile(r"\*\*/|\*+|\?|\[!?\]?[^\]]*\]|.", re.DOTALL)
HINT = "finish it and save; box.image and box.setup in the settings take precedence over it"

_texts: dict[str, str] = {}
"""By digest, so that all lanes share it."""


class ProjectFiles:
    """The files of one snapshot, or of one folder of it, by path."""

    def __init__(self, snapshot: Snapshot, read: ContentReader, folder: str = "") -> None:
        """All paths are relative to the folder, by default the root of the tree."""
        self.snapshot = snapshot
        self.read = read
        self.folder = folder
        self._prefix = f"{folder}/" if folder else ""
        self._below: dict[str, ProjectFiles] = {}
        # This runs over up to a hundred thousand paths at every save, so the cheapest checks come first.
        start, paths = len(self._prefix), snapshot.entries
        self.paths: Collection[str] = (
            [path[start:] for path in paths if path.startswith(self._prefix)] if folder else paths
        )
        self._near = [path for path in self.paths if "/" not in path or (path[0] in INITIALS and path.startswith(NEAR))]

    def below(self, folder: str) -> ProjectFiles:
        """Return the files of a folder, with paths relative to it."""
        if folder and folder not in self._below:
            self._below[folder] = ProjectFiles(self.snapshot, self.read, self.path_in_tree(folder))
        return self._below[folder] if folder else self

    def folders_with(self, names: tuple[str, ...]) -> list[str]:
        """Return the folders below the root that have one of these files."""
        suffixes = tuple(f"/{name}" for name in names)
        found = {path.rpartition("/")[0] for path in self.paths if path.endswith(suffixes)}
        return sorted(found, key=lambda folder: (folder.count("/"), folder))

    def path_in_tree(self, path: str) -> str:
        return self._prefix + path

    def has(self, path: str) -> bool:
        entry = self.snapshot.entries.get(self._prefix + path)
        return entry is not None and entry.kind is EntryKind.FILE

    def digest(self, path: str) -> str:
        return self.snapshot.entries[self._prefix + path].digest

    def matching(self, patterns: tuple[str, ...]) -> list[str]:
        """Return the files that match one of the globs. `*` stays in its folder, `**/` is any number of folders."""
        expression, is_near = _globs(patterns)
        paths = self._near if is_near else self.paths
        return sorted(path for path in paths if expression.fullmatch(path) and self.has(path))

    def text(self, path: str) -> str:
        """Return the content of the file, or "" if it does not exist."""
        if not self.has(path):
            return ""
        entry = self.snapshot.entries[self._prefix + path]
        if entry.digest not in _texts:
            text = self.read(self._prefix + path, entry).decode("utf-8-sig", "replace")
            for oldest in list(_texts)[: max(0, len(_texts) - MAX_TEXTS)]:
                _texts.pop(oldest, None)
            _texts[entry.digest] = text
            return text
        return _texts[entry.digest]

    def toml(self, path: str) -> Mapping[str, Any]:
        try:
            return _toml(self.text(path))
        except ValueError as error:
            raise ConfigError(f"{self._prefix}{path} is not valid TOML: {error}", hint=HINT) from error

    def json(self, path: str) -> Mapping[str, Any]:
        text = self.text(path)
        try:
            found = _json(text) if text else {}
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self._prefix}{path} is not valid JSON: {error}", hint=HINT) from error
        return found if isinstance(found, dict) else {}

    def ini(self, path: str) -> configparser.RawConfigParser:
        """Parse an INI file; the result is empty if it is invalid, because only its installation depends on it."""
        return parse_ini(self.text(path))


def table(value: object, *keys: str) -> Mapping[str, Any]:
    """Return the table at these nested keys, or {} if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def texts(value: object) -> list[str]:
    """Return the strings in a list; other items are extensions that we do not know."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


_toml = functools.lru_cache(maxsize=64)(tomllib.loads)


@functools.lru_cache(maxsize=16)
def parse_ini(text: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return configparser.RawConfigParser()
    return parser


@functools.lru_cache(maxsize=64)
def _json(text: str) -> object:
    """Parse JSON, with comments, trailing commas and single quotes if necessary."""
    try:
        return json.loads(text)
    except ValueError:
        import json5  # slow and rarely needed

        return json5.loads(text)


@functools.lru_cache(maxsize=16)
def _globs(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], bool]:
    """Return the expression for these globs, and whether it can match only near files."""
    cleaned = [pattern.removeprefix("./").removeprefix("/") for pattern in patterns]
    is_near = all("/" not in pattern or pattern.startswith(NEAR) for pattern in cleaned)
    expressions = ["".join(map(_part, GLOB_PARTS.findall(pattern))) for pattern in cleaned]
    return re.compile("|".join(expressions)), is_near


def _part(part: str) -> str:
    if part == "**/":
        return "(?:[^/]+/)*"
    if part.startswith("*"):
        return ".*" if len(part) > 1 else "[^/]*"
    if part == "?":
        return "[^/]"
    if part.startswith("[") and len(part) > 1:
        inner = part[1:-1].replace("\\", r"\\")
        return f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
    return re.escape(part)
