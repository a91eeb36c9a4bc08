"""Install a Python project for its tests: with uv, poetry or pipenv if it uses them, else with pip.

Everything goes into the box's virtualenv (`VIRTUAL_ENV`), which is first on PATH. A tool that the image lacks gets a
virtualenv of its own inside that one, so that its dependencies do not mix with those of the project.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from packaging.dependency_groups import resolve_dependency_groups

from watchtest.boxes.recipe.project_files import ProjectFiles, table, texts

PROJECT = "pyproject.toml"
TEST_WORDS = ("test", "tests", "testing", "dev")
"""Usual names of the extras and groups for tests."""
REQUIREMENTS = ("requirements*.txt", "*-requirements.txt")
REQUIREMENTS_FOLDER = ("requirements/*.txt",)
BASE_NAMES = re.compile(r"(base|common|core|main|default|all|requirements)$")
TEST_NAMES = re.compile(r"(.*[-_])?(tests?|testing|dev|develop|development|ci|local)([-_].*)?$")
HATCH_ENVIRONMENTS = ("default", "test", "hatch-test")


def commands(files: ProjectFiles) -> list[str]:
    project = files.toml(PROJECT) if files.has(PROJECT) else {}
    if is_uv(files, project):
        return [_tool("uv"), _uv(project)]
    if is_poetry(files, project):
        return [_tool("poetry"), _poetry(project)]
    if files.has("Pipfile") and "project" not in project:
        return [
            _tool("pipenv"),
            "pipenv sync --dev" if files.has("Pipfile.lock") else "pipenv install --dev --skip-lock",
        ]
    return [*_requirements(files), *_project(files, project)]


def is_uv(files: ProjectFiles, project: Mapping[str, Any]) -> bool:
    if files.has("poetry.lock"):
        return False
    return files.has(PROJECT) and (files.has("uv.lock") or ("project" in project and _uses(project, "uv")))


def is_poetry(files: ProjectFiles, project: Mapping[str, Any]) -> bool:
    return files.has(PROJECT) and (files.has("poetry.lock") or _uses(project, "poetry"))


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
    is_project, is_built = "project" in project, "build-system" in project
    optional = table(project, "project", "optional-dependencies")
    extras = _test_names(optional)
    environments = [table(project, "tool", "hatch", "envs", name) for name in HATCH_ENVIRONMENTS]
    more = [name for found in environments for name in texts(found.get("features")) if name in optional]
    extras += [name for name in dict.fromkeys(more) if name not in extras]
    installed: list[str] = []
    if is_project and is_built:
        installed += _editable(extras)
    elif _is_declared(files):
        installed += _editable(_test_names(_declared_extras(files)))
    elif is_project:
        # It names no build system, so only its dependencies can be installed.
        lists = [table(project, "project").get("dependencies"), *(optional[name] for name in extras)]
        installed += _named([one for each in lists for one in texts(each)])
    installed += _named(_group(project.get("dependency-groups")))
    pdm = table(project, "tool", "pdm", "dev-dependencies")
    installed += _named([one for name in _test_names(pdm) for one in texts(pdm[name])])
    hatch = [
        one for found in environments for key in ("dependencies", "extra-dependencies") for one in texts(found.get(key))
    ]
    return installed + _named(one for one in hatch if "{" not in one)


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


def _test_names(found: Mapping[str, Any]) -> list[str]:
    return [name for name in TEST_WORDS if name in found]


def _is_declared(files: ProjectFiles) -> bool:
    settings = files.ini("setup.cfg")
    return files.has("setup.py") or settings.has_section("metadata") or settings.has_section("options")


def _declared_extras(files: ProjectFiles) -> Mapping[str, Any]:
    settings, section = files.ini("setup.cfg"), "options.extras_require"
    return dict(settings.items(section)) if settings.has_section(section) else {}
