"""Ignore patterns in the manner of .gitignore, read by pathspec: the user's own, and all others where git is absent.

Paths are relative and POSIX; the path of a folder ends in a slash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate

from pathspec import GitIgnoreSpec

from watchtest.errors import ConfigError

BUILT_IN = (
    "__pycache__/",
    "*.py[cod]",
    ".venv/",
    "venv/",
    "node_modules/",
    ".tox/",
    ".nox/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".hypothesis/",
    "*.egg-info/",
    ".DS_Store",
)
"""What nobody wants in a box, where no git says so."""


def specification(lines: Iterable[str], origin: str) -> GitIgnoreSpec:
    patterns = list(lines)
    try:
        return GitIgnoreSpec.from_lines(patterns)
    except ValueError as error:
        raise ConfigError(
            f"{origin}: a pattern cannot be read: {error}",
            hint="Patterns are written as in a .gitignore file.",
        ) from error


class OwnGlobs:
    """`ignore` leaves more out than git does, `include` brings back what is ignored, and wins.

    As in a .gitignore, a pattern without a slash is about a name in any folder that is not itself ignored. A pattern
    with a slash also brings back what lies deep in an ignored folder, and only for such a pattern is it entered.
    """

    def __init__(self, ignore: Sequence[str], include: Sequence[str]) -> None:
        self._ignore = specification(ignore, "ignore")
        self._include = specification(include, "include")
        self._ways = [way for pattern in include if (way := _way(pattern))]

    def says_in(self, path: str) -> bool:
        return bool(self._include) and self._include.match_file(path)

    def says_out(self, path: str) -> bool:
        return bool(self._ignore) and self._ignore.match_file(path)

    def may_lead_in(self, folder: str) -> bool:
        """Whether `include` names something below this folder."""
        parts = folder.rstrip("/").split("/")
        return any(_leads(way, parts) for way in self._ways)


class PlainRules:
    """What git would say, as far as pathspec knows: the built-in names and the .gitignore files of the tree."""

    def __init__(self) -> None:
        self._built_in = specification(BUILT_IN, "built-in")
        self._files: dict[str, GitIgnoreSpec] = {}
        self._folders: dict[str, bool] = {"": False}

    def is_stale(self) -> bool:
        return False

    def read(self, folder: str, content: bytes | None) -> None:
        """The .gitignore file of a folder, or that it has none. A line that cannot be read says nothing."""
        self._files.pop(folder, None)
        self._folders = {"": False}
        if content is not None:
            lines = content.decode("utf-8", "surrogateescape").splitlines()
            self._files[folder] = GitIgnoreSpec.from_lines([line for line in lines if _is_readable(line)])
            # The nearest file that has a word on a path decides, as in git.
            self._files = dict(sorted(self._files.items(), key=lambda item: len(item[0]), reverse=True))

    def ignored(self, paths: Iterable[str]) -> set[str]:
        return {path for path in paths if self._is_ignored(path)}

    def holds_tracked(self, folder: str) -> bool:
        return False

    def is_tracked(self, path: str) -> bool:
        return False

    def _is_ignored(self, path: str) -> bool:
        parent = path[: path.rfind("/", 0, len(path) - 1) + 1]
        if parent not in self._folders:
            for place in re.finditer("/", parent):
                self._is_ignored(path[: place.end()])
        is_ignored = self._folders[parent] or self._says(path)
        if path.endswith("/"):
            self._folders[path] = is_ignored
        return is_ignored

    def _says(self, path: str) -> bool:
        for folder, spec in self._files.items():
            if path.startswith(folder) and (word := spec.check_file(path[len(folder) :]).include) is not None:
                return word
        return self._built_in.match_file(path[path.rfind("/", 0, len(path) - 1) + 1 :])


def _is_readable(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _way(pattern: str) -> tuple[str, ...]:
    """The folders on the way to what an anchored pattern names; nothing for a pattern without a slash."""
    text = pattern.strip()
    if text.startswith(("#", "!")) or "/" not in text.rstrip("/"):
        return ()
    return tuple(text.strip("/").split("/"))


def _leads(way: tuple[str, ...], parts: Sequence[str]) -> bool:
    for step, part in zip(way, parts, strict=False):
        if step == "**":
            return True
        if not re.match(translate(step), part):
            return False
    return len(parts) < len(way)
