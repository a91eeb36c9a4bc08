"""The files that the setup of a project depends on, and a key of their content: another key means another setup."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterator, Sequence

from watchtest.boxes.recipe.project_files import ProjectFiles, table, texts
from watchtest.errors import ConfigError

PROJECT = "pyproject.toml"
INSTALLABLE = (PROJECT, "setup.py", "setup.cfg")
INCLUDED = re.compile(r"^(?:-r|--requirement|-c|--constraint)(?:\s*=\s*|\s*)(?P<path>\S+)")
LOCAL = re.compile(r"^(?:(?:-e|--editable)(?:\s*=\s*|\s*))?(?P<path>\.{0,2}/[^\s;\[]*|\.{1,2}(?=$|[\s;\[]))")
IRRELEVANT_TOOLS = frozenset(
    {"watchtest", "ruff", "black", "isort", "mypy", "pyright", "basedpyright", "pytest", "coverage", "pylint", "tox"}
    | {"flake8", "bandit", "towncrier", "commitizen", "codespell", "interrogate", "vulture", "pydocstyle"}
    | {"cibuildwheel"}
)
"""Tables of pyproject.toml that do not affect an installation: changing them triggers no setup."""


def dependency_files(files: ProjectFiles, patterns: tuple[str, ...]) -> list[str]:
    """Return the files that match the globs, and the files that those include in turn."""
    found: dict[str, None] = {}
    waiting = files.matching(patterns)
    while waiting:
        path = waiting.pop()
        if path not in found and files.has(path):
            found[path] = None
            if path.endswith((".txt", ".in")):
                waiting += _included_by_requirements(path, files.text(path))
            elif path == PROJECT:
                waiting += _included_by_project(files)
    return sorted(found)


def setup_key(commands: Sequence[str], paths: Sequence[str], files: ProjectFiles) -> str:
    lines = [*commands, *(f"{path} {_relevant_content(path, files)}" for path in paths)]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _included_by_requirements(path: str, text: str) -> Iterator[str]:
    folder = posixpath.dirname(path)
    for line in text.splitlines():
        if found := INCLUDED.match(line.strip()):
            yield posixpath.normpath(posixpath.join(folder, found["path"]))
        elif found := LOCAL.match(line.strip()):
            # pip resolves such a path from its working directory, the root of the tree.
            yield from (posixpath.normpath(posixpath.join(found["path"], name)) for name in INSTALLABLE)


def _included_by_project(files: ProjectFiles) -> Iterator[str]:
    """Yield the files in which setuptools keeps dynamic dependencies."""
    try:
        dynamic = table(files.toml(PROJECT), "tool", "setuptools", "dynamic")
    except ConfigError:
        return
    for source in (dynamic.get("dependencies"), *table(dynamic, "optional-dependencies").values()):
        named = table(source).get("file")
        yield from [named] if isinstance(named, str) else texts(named)


def _relevant_content(path: str, files: ProjectFiles) -> str:
    """Return a text that changes exactly when the file may lead to another installation."""
    if path != PROJECT:
        return files.digest(path)
    try:
        content = dict(files.toml(path))
    except ConfigError:
        return files.digest(path)
    content["tool"] = {name: value for name, value in table(content, "tool").items() if name not in IRRELEVANT_TOOLS}
    return json.dumps(content, sort_keys=True, default=str)
