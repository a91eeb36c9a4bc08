"""Python projects: which Python they want. What they install is in `pythonsetup`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from watchtest.boxes.recipe.languages.python_setup import PROJECT, REQUIREMENTS, commands
from watchtest.boxes.recipe.project_files import ProjectFiles, table
from watchtest.core.impact_rules import CONFTEST, PYTEST_FILES

__all__ = ["NAME", "commands", "image", "is_here"]

NAME = "python"
PIN = ".python-version"
SIGNS = ("setup.py", "setup.cfg", "Pipfile", "Pipfile.lock", "uv.lock", "poetry.lock", "pdm.lock", PIN)
TEST_SIGNS = (*PYTEST_FILES, "tox.ini", CONFTEST, f"tests/{CONFTEST}")
OWN_TOOLS = frozenset({"poetry", "pdm", "hatch", "setuptools", "pytest"})
KNOWN = tuple((3, minor) for minor in range(8, 16))
"""The agent needs 3.8."""


def is_here(files: ProjectFiles) -> bool:
    if any(files.has(path) for path in (*SIGNS, *TEST_SIGNS)) or files.matching(REQUIREMENTS):
        return True
    project = files.toml(PROJECT) if files.has(PROJECT) else {}
    # Others keep the settings of their linters in this file, too.
    return "project" in project or "build-system" in project or not OWN_TOOLS.isdisjoint(table(project, "tool"))


def image(files: ProjectFiles, host_python: tuple[int, int]) -> tuple[str, str]:
    (major, minor), because = wanted_python(files, host_python)
    return f"python:{major}.{minor}-slim", because


def wanted_python(files: ProjectFiles, host: tuple[int, int]) -> tuple[tuple[int, int], str]:
    """The host's own version if the project allows it, else the newest that it does, and why."""
    wishes = list(_wishes(files))
    if not wishes:
        return host, "the Python that runs watchtest; the project names none"
    because = ", ".join(f"{path}: {words}" for path, words, _ in wishes)
    order = [host, *sorted({*KNOWN} - {host}, reverse=True)]
    # The image of 3.12 holds the last 3.12.x; only a project that is pinned to an early one is content with less.
    for patch in (99, 0):
        for version in order:
            text = f"{version[0]}.{version[1]}.{patch}"
            if all(allowed.contains(text, prereleases=True) for _, _, allowed in wishes):
                return version, because
    return host, f"the Python that runs watchtest; no known one meets {because}"


def _wishes(files: ProjectFiles) -> Iterator[tuple[str, str, SpecifierSet]]:
    """Where it is said, in which words, and what it means."""
    if files.has(PROJECT):
        project = files.toml(PROJECT)
        yield from _wish(PROJECT, "requires-python", table(project, "project").get("requires-python"))
        yield from _poetry_wish(table(project, "tool", "poetry", "dependencies").get("python"))
    if found := re.search(r"^\s*(?:cpython[-@]?)?(3\.\d+)", files.text(PIN), re.MULTILINE):
        yield PIN, found[1], SpecifierSet(f"=={found[1]}.*")
    yield from _wish("setup.cfg", "python_requires", _declared(files))
    found = re.search(r"""python_requires\s*=\s*["']([^"']+)["']""", files.text("setup.py"))
    yield from _wish("setup.py", "python_requires", found[1] if found else None)


def _wish(path: str, key: str, value: object) -> Iterator[tuple[str, str, SpecifierSet]]:
    if not isinstance(value, str):
        return
    try:
        yield path, f"{key} {value}", SpecifierSet(value)
    except InvalidSpecifier:
        return  # whoever installs the project says what is wrong with it


def _poetry_wish(value: object) -> Iterator[tuple[str, str, SpecifierSet]]:
    """Poetry's `^3.11` is at least 3.11 and below 4, `~3.11` is any 3.11."""
    if not isinstance(value, str) or "|" in value:
        return
    parts = [_from_poetry(part) for part in value.split(",")]
    try:
        yield PROJECT, f"python {value}", SpecifierSet(",".join(part for part in parts if part))
    except InvalidSpecifier:
        return


def _from_poetry(part: str) -> str:
    found = re.fullmatch(r"(\^|~)?\s*(3)(?:\.(\d+))?((?:\.\d+)*)(?:\.\*)?", part.strip())
    if found is None:
        return part.strip() if part.strip() != "*" else ""
    how, major, minor, patch = found.groups()
    if how == "^" or (how == "~" and minor is None):
        return f">={major}.{minor or 0}{patch},<4"
    return f"=={major}.*" if minor is None else f"=={major}.{minor}.*"


def _declared(files: ProjectFiles) -> str | None:
    return files.ini("setup.cfg").get("options", "python_requires", fallback=None)
