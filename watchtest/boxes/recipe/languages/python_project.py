"""Python projects: choose their Python version. Their setup is in `python_setup`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from watchtest.boxes.recipe.languages.python_setup import PROJECT, REQUIREMENTS, commands
from watchtest.boxes.recipe.project_files import ProjectFiles, table
from watchtest.core.impact_rules import CONFTEST, PYTEST_FILES

__all__ = ["NAME", "commands", "image", "is_used"]

NAME = "python"
PIN = ".python-version"
SIGNS = ("setup.py", "setup.cfg", "Pipfile", "Pipfile.lock", "uv.lock", "poetry.lock", "pdm.lock", PIN)
TEST_SIGNS = (*PYTEST_FILES, "tox.ini", CONFTEST, f"tests/{CONFTEST}")
OWN_TOOLS = frozenset({"poetry", "pdm", "hatch", "setuptools", "pytest"})
KNOWN = tuple((3, minor) for minor in range(8, 16))
"""The agent needs 3.8 or newer."""


def is_used(files: ProjectFiles) -> bool:
    if any(files.has(path) for path in (*SIGNS, *TEST_SIGNS)) or files.matching(REQUIREMENTS):
        return True
    project = files.toml(PROJECT) if files.has(PROJECT) else {}
    # Projects in other languages may keep the settings of linters in this file.
    return "project" in project or "build-system" in project or not OWN_TOOLS.isdisjoint(table(project, "tool"))


def image(files: ProjectFiles, host_python: tuple[int, int]) -> tuple[str, str]:
    (major, minor), because = wanted_python(files, host_python)
    return f"python:{major}.{minor}-slim", because


def wanted_python(files: ProjectFiles, host: tuple[int, int]) -> tuple[tuple[int, int], str]:
    """Return the host's own version if the project allows it, else the newest that it allows, and the reason."""
    requirements = list(_requirements(files))
    if not requirements:
        return host, "the Python that runs watchtest; the project names none"
    because = ", ".join(f"{path}: {words}" for path, words, _ in requirements)
    order = [host, *sorted({*KNOWN} - {host}, reverse=True)]
    # The image of 3.12 has the newest 3.12.x; patch 0 is for projects that require an early patch release.
    for patch in (99, 0):
        for version in order:
            text = f"{version[0]}.{version[1]}.{patch}"
            if all(allowed.contains(text, prereleases=True) for _, _, allowed in requirements):
                return version, because
    return host, f"the Python that runs watchtest; no known version satisfies {because}"


def _requirements(files: ProjectFiles) -> Iterator[tuple[str, str, SpecifierSet]]:
    """Yield each requirement: the file, its text, and the versions it allows."""
    if files.has(PROJECT):
        project = files.toml(PROJECT)
        yield from _requirement(PROJECT, "requires-python", table(project, "project").get("requires-python"))
        yield from _poetry_requirement(table(project, "tool", "poetry", "dependencies").get("python"))
    if found := re.search(r"^\s*(?:cpython[-@]?)?(3\.\d+)", files.text(PIN), re.MULTILINE):
        yield PIN, found[1], SpecifierSet(f"=={found[1]}.*")
    yield from _requirement("setup.cfg", "python_requires", _setup_cfg_requirement(files))
    found = re.search(r"""python_requires\s*=\s*["']([^"']+)["']""", files.text("setup.py"))
    yield from _requirement("setup.py", "python_requires", found[1] if found else None)


def _requirement(path: str, key: str, value: object) -> Iterator[tuple[str, str, SpecifierSet]]:
    if not isinstance(value, str):
        return
    try:
        yield path, f"{key} {value}", SpecifierSet(value)
    except InvalidSpecifier:
        return  # the installation of the project reports the error


def _poetry_requirement(value: object) -> Iterator[tuple[str, str, SpecifierSet]]:
    """Yield poetry's requirement: `^3.11` means at least 3.11 and below 4, `~3.11` means any 3.11."""
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


def _setup_cfg_requirement(files: ProjectFiles) -> str | None:
    return files.ini("setup.cfg").get("options", "python_requires", fallback=None)
