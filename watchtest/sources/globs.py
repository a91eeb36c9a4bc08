"""Gitignore-style patterns, evaluated by pathspec: the user's own, and the .gitignore files where git is absent.

Paths are relative and POSIX; the path of a folder ends in a slash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate

from pathspec import GitIgnoreSpec

from watchtest.errors import ConfigError

BUILT_IN = (
    *("__pycache__/", "*.py[cod]", ".venv/", "venv/", "node_modules/", ".tox/", ".nox/", "*.egg-info/", ".DS_Store"),
    *(".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".hypothesis/"),
)
"""Left out of the box where git is absent."""


def specification(lines: Iterable[str], origin: str) -> GitIgnoreSpec:
    """Compile patterns. Raises ConfigError, which names `origin`, if one of them is invalid."""
    patterns = list(lines)
    try:
        return GitIgnoreSpec.from_lines(patterns)
    except ValueError as error:
        raise ConfigError(f"{origin}: invalid pattern: {error}", hint="Write patterns as in .gitignore.") from error


class UserGlobs:
    """`watch.ignore` leaves out more than git does; `watch.include` brings ignored paths back and wins.

    As in .gitignore, a pattern without a slash matches a name in any folder that is not itself ignored. A pattern with
    a slash also matches deep inside an ignored folder; only for such a pattern is an ignored folder entered.
    """

    def __init__(self, ignore: Sequence[str], include: Sequence[str]) -> None:
        self._ignore = specification(ignore, "ignore")
        self._include = specification(include, "include")
        self._anchored = [parts for pattern in include if (parts := _anchored_parts(pattern))]

    def includes(self, path: str) -> bool:
        return bool(self._include) and self._include.match_file(path)

    def ignores(self, path: str) -> bool:
        return bool(self._ignore) and self._ignore.match_file(path)

    def may_include_below(self, folder: str) -> bool:
        """Tell whether an `include` pattern can match something below this folder."""
        parts = folder.rstrip("/").split("/")
        return any(_can_match_below(pattern, parts) for pattern in self._anchored)


class PathspecRules:
    """Stands in for git: evaluates the built-in patterns and the .gitignore files of the tree with pathspec."""

    def __init__(self) -> None:
        self._built_in = specification(BUILT_IN, "built-in")
        self._files: dict[str, GitIgnoreSpec] = {}
        self._folders: dict[str, bool] = {"": False}

    def is_stale(self) -> bool:
        return False

    def set_ignore_file(self, folder: str, content: bytes | None) -> None:
        """Set the content of a folder's .gitignore, or None if it has none. Invalid lines are skipped."""
        self._files.pop(folder, None)
        self._folders = {"": False}
        if content is not None:
            lines = content.decode("utf-8", "surrogateescape").splitlines()
            self._files[folder] = GitIgnoreSpec.from_lines([line for line in lines if _is_valid(line)])
            # As in git, the nearest file with a matching pattern decides.
            self._files = dict(sorted(self._files.items(), key=lambda item: len(item[0]), reverse=True))

    def ignored(self, paths: Iterable[str]) -> set[str]:
        return {path for path in paths if self._is_ignored(path)}

    def has_tracked_files(self, folder: str) -> bool:
        return False

    def is_tracked(self, path: str) -> bool:
        return False

    def _is_ignored(self, path: str) -> bool:
        parent = path[: path.rfind("/", 0, len(path) - 1) + 1]
        if parent not in self._folders:
            for slash in re.finditer("/", parent):
                self._is_ignored(path[: slash.end()])
        is_ignored = self._folders[parent] or self._matches(path)
        if path.endswith("/"):
            self._folders[path] = is_ignored
        return is_ignored

    def _matches(self, path: str) -> bool:
        for folder, spec in self._files.items():
            if path.startswith(folder) and (is_match := spec.check_file(path[len(folder) :]).include) is not None:
                return is_match
        return self._built_in.match_file(path[path.rfind("/", 0, len(path) - 1) + 1 :])


def _is_valid(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _anchored_parts(pattern: str) -> tuple[str, ...]:
    """Return the path components of a pattern that contains a slash; nothing for any other pattern."""
    text = pattern.strip()
    if text.startswith(("#", "!")) or "/" not in text.rstrip("/"):
        return ()
    return tuple(text.strip("/").split("/"))


def _can_match_below(pattern: tuple[str, ...], folder: Sequence[str]) -> bool:
    for glob, name in zip(pattern, folder, strict=False):
        if glob == "**":
            return True
        if not re.match(translate(glob), name):
            return False
    return len(folder) < len(pattern)
