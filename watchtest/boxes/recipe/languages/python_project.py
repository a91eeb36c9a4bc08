"""Python projects: choose their Python version and install them for their tests.

They are installed with uv, poetry or pipenv if they use them, else with pip. Everything goes into the box's virtualenv
(`VIRTUAL_ENV`), which is first on PATH. A tool that the image lacks gets a virtualenv of its own inside that one, so
that its dependencies do not mix with those of the project.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from packaging.dependency_groups import resolve_dependency_groups
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from watchtest.boxes.recipe.project_files import ProjectFiles, table, texts
from watchtest.core.impact_rules import CONFTEST, PYTEST_FILES

NAME = "python"
PROJECT = "pyproject.toml"
REQUIREMENTS = ("requirements*.txt", "*-requirements.txt")
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
    requirements = list(_version_requirements(files))
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


def _version_requirements(files: ProjectFiles) -> Iterator[tuple[str, str, SpecifierSet]]:
    """Yield each requirement: the file, its text, and the versions it allows."""
    if files.has(PROJECT):
        project = files.toml(PROJECT)
        yield from _requirement(PROJECT, "requires-python", table(project, "project").get("requires-python"))
        yield from _poetry_requirement(table(project, "tool", "poetry", "dependencies").get("python"))
    if found := re.search(r"^\s*(?:cpython[-@]?)?(3\.\d+)", files.text(PIN), re.MULTILINE):
        yield PIN, found[1], SpecifierSet(f"=={found[1]}.*")
    settings = files.ini("setup.cfg")
    yield from _requirement("setup.cfg", "python_requires", settings.get("options", "python_requires", fallback=None))
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


# -- setup -----------------------------------------------------------------------------------------

TEST_WORDS = ("test", "tests", "testing", "dev")
"""Usual names of the extras and groups for tests."""
REQUIREMENTS_FOLDER = ("requirements/*.txt",)
BASE_NAMES = re.compile(r"(base|common|core|main|default|all|requirements)$")
TEST_NAMES = re.compile(r"(.*[-_])?(tests?|testing|dev|develop|development|ci|local)([-_].*)?$")
HATCH_ENVIRONMENTS = ("default", "test", "hatch-test")


def commands(files: ProjectFiles) -> list[str]:
    project = files.toml(PROJECT) if files.has(PROJECT) else {}
    is_uv = files.has("uv.lock") or ("project" in project and _uses(project, "uv"))
    if files.has(PROJECT) and is_uv and not files.has("poetry.lock"):
        return [_tool("uv"), _uv(project)]
    if files.has(PROJECT) and (files.has("poetry.lock") or _uses(project, "poetry")):
        return [_tool("poetry"), _poetry(project)]
    if files.has("Pipfile") and "project" not in project:
        install = "pipenv sync --dev" if files.has("Pipfile.lock") else "pipenv install --dev --skip-lock"
        return [_tool("pipenv"), install]
    return [*_requirements(files), *_project(files, project)]


def _uses(project: Mapping[str, Any], tool: str) -> bool:
    return isinstance(table(project, "tool").get(tool), dict)


def _tool(name: str) -> str:
    """Return a command that installs a tool, in the virtualenv, unless the image has it."""
    own = f"tools/{name}"
    steps = (f"python -m venv {own}", f"{own}/bin/pip install {name}", f"ln -sf ../{own}/bin/{name} bin/{name}")
    return f'command -v {name} || (cd "$VIRTUAL_ENV" && {" && ".join(steps)})'


# -- uv and poetry ---------------------------------------------------------------------------------


def _uv(project: Mapping[str, Any]) -> str:
    """Return the command for uv: `--inexact` keeps manual installations, `--python` overrides .python-version."""
    extras = [f"--extra {name}" for name in _test_names(table(project, "project", "optional-dependencies"))]
    defaults = table(project, "tool", "uv").get("default-groups", ["dev"])
    groups = [
        f"--group {name}" for name in _test_names(table(project, "dependency-groups")) if name not in texts(defaults)
    ]
    members = ["--all-packages"] if table(project, "tool", "uv", "workspace") else []
    return " ".join(['uv sync --active --inexact --python "$VIRTUAL_ENV/bin/python"', *extras, *groups, *members])


def _poetry(project: Mapping[str, Any]) -> str:
    optional = {**table(project, "tool", "poetry", "extras"), **table(project, "project", "optional-dependencies")}
    groups = table(project, "tool", "poetry", "group")
    left_out = [name for name in _test_names(groups) if table(groups, name).get("optional") is True]
    extras = [f"--extras {name}" for name in _test_names(optional)]
    return " ".join(["poetry install --no-interaction", *(f"--with {name}" for name in left_out), *extras])


# -- pip -------------------------------------------------------------------------------------------


def _requirements(files: ProjectFiles) -> list[str]:
    """Install the requirements files in the root, or the base and test files of the requirements folder."""
    found = files.matching(REQUIREMENTS)
    if not found:
        names = {path: posixpath.splitext(posixpath.basename(path))[0] for path in files.matching(REQUIREMENTS_FOLDER)}
        found = [path for path, name in names.items() if BASE_NAMES.match(name)]
        found += [path for path, name in names.items() if TEST_NAMES.match(name)]
        found = found or [path for path, name in names.items() if name.startswith("prod")]
    return [f"pip install -r {shlex.quote(path)}" for path in found]


def _project(files: ProjectFiles, project: Mapping[str, Any]) -> list[str]:
    environments = [table(project, "tool", "hatch", "envs", name) for name in HATCH_ENVIRONMENTS]
    hatch = [
        one for found in environments for key in ("dependencies", "extra-dependencies") for one in texts(found.get(key))
    ]
    pdm = table(project, "tool", "pdm", "dev-dependencies")
    return [
        *_package(files, project, environments),
        *_named(_group(project.get("dependency-groups"))),
        *_named(one for name in _test_names(pdm) for one in texts(pdm[name])),
        *_named(one for one in hatch if "{" not in one),
    ]


def _package(files: ProjectFiles, project: Mapping[str, Any], environments: list[Mapping[str, Any]]) -> list[str]:
    """Install the project itself, or only its dependencies if it names no build system; with its extras for tests."""
    optional = table(project, "project", "optional-dependencies")
    features = [name for found in environments for name in texts(found.get("features")) if name in optional]
    extras = list(dict.fromkeys([*_test_names(optional), *features]))
    if "project" in project and "build-system" in project:
        return _editable(extras)
    settings, section = files.ini("setup.cfg"), "options.extras_require"
    if files.has("setup.py") or settings.has_section("metadata") or settings.has_section("options"):
        return _editable(_test_names(settings.options(section) if settings.has_section(section) else ()))
    if "project" not in project:
        return []
    lists = [table(project, "project").get("dependencies"), *(optional[name] for name in extras)]
    return _named(one for each in lists for one in texts(each))


def _editable(extras: list[str]) -> list[str]:
    return [f"pip install -e {shlex.quote('.[' + ','.join(extras) + ']') if extras else '.'}"]


def _named(requirements: Iterable[str]) -> list[str]:
    needed = list(dict.fromkeys(requirements))
    return [f"pip install {shlex.join(needed)}"] if needed else []


def _group(groups: object) -> list[str]:
    """Return the requirements of the dependency group for tests (PEP 735)."""
    name = next(iter(_test_names(table(groups))), None)
    if name is None:
        return []
    try:
        return list(resolve_dependency_groups(table(groups), name))
    except (ValueError, TypeError, LookupError, ExceptionGroup):
        return []  # an invalid group, which pip would not install either


def _test_names(found: Container[str]) -> list[str]:
    return [name for name in TEST_WORDS if name in found]
