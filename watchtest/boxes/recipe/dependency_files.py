"""Which files a setup depends on, and a key that changes exactly when it has to be done again."""

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
ELSEWHERE = re.compile(r"^(?:-r|--requirement|-c|--constraint)(?:\s*=\s*|\s*)(?P<path>\S+)")
LOCAL = re.compile(r"^(?:(?:-e|--editable)(?:\s*=\s*|\s*))?(?P<path>\.{0,2}/[^\s;\[]*|\.{1,2}(?=$|[\s;\[]))")
IRRELEVANT_TOOLS = frozenset(
    {"watchtest", "ruff", "black", "isort", "mypy", "pyright", "basedpyright", "pytest", "coverage", "pylint", "tox"}
    | {
        "flake8",
        "bandit",
        "towncrier",
        "commitizen",
        "codespell",
        "interrogate",
        "vulture",
        "pydocstyle",
        "cibuildwheel",
    }
)
"""Tables of pyproject.toml that installing a project never looks at: editing them sets nothing up again."""


def dependency_files(files: ProjectFiles, patterns: tuple[str, ...]) -> list[str]:
    """What the globs name, and what those files name in turn, wherever it lies."""
    found: dict[str, None] = {}
    waiting = files.matching(patterns)
    while waiting:
        path = waiting.pop()
        if path not in found and files.has(path):
            found[path] = None
            waiting += _named_by(path, files)
    return sorted(found)


def setup_key(commands: Sequence[str], paths: Sequence[str], files: ProjectFiles) -> str:
    basis = [*commands, *(f"{path} {_meaning(path, files)}" for path in paths)]
    return hashlib.sha256("\n".join(basis).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _named_by(path: str, files: ProjectFiles) -> Iterator[str]:
    if path.endswith((".txt", ".in")):
        yield from _named_by_requirements(path, files.text(path))
    elif path == PROJECT:
        yield from _named_by_project(files)


def _named_by_requirements(path: str, text: str) -> Iterator[str]:
    folder = posixpath.dirname(path)
    for line in text.splitlines():
        if found := ELSEWHERE.match(line.strip()):
            yield posixpath.normpath(posixpath.join(folder, found["path"]))
        elif found := LOCAL.match(line.strip()):
            # pip reads such a path from where it runs, which is the top of the tree.
            yield from (posixpath.normpath(posixpath.join(found["path"], name)) for name in INSTALLABLE)


def _named_by_project(files: ProjectFiles) -> Iterator[str]:
    """Setuptools can keep the dependencies in files of their own."""
    try:
        dynamic = table(files.toml(PROJECT), "tool", "setuptools", "dynamic")
    except ConfigError:
        return
    wanted = [dynamic.get("dependencies"), *table(dynamic, "optional-dependencies").values()]
    for one in wanted:
        named = table(one).get("file")
        yield from [named] if isinstance(named, str) else texts(named)


def _meaning(path: str, files: ProjectFiles) -> str:
    """The content, but for what no installation looks at."""
    if path != PROJECT:
        return files.digest(path)
    try:
        content = dict(files.toml(path))
    except ConfigError:
        return files.digest(path)
    content["tool"] = {name: value for name, value in table(content, "tool").items() if name not in IRRELEVANT_TOOLS}
    return json.dumps(content, sort_keys=True, default=str)
