"""The commands that install the chosen dependencies, with the tool that the project uses: uv, poetry, pipenv or pip.

Everything goes into the box's virtualenv (`VIRTUAL_ENV`), which is first on PATH. A tool that the image lacks gets a
virtualenv of its own inside that one, so that its dependencies do not mix with those of the project.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from watchtest.boxes.recipe.languages.python.dependency_choice import ChosenDependencies
from watchtest.boxes.recipe.languages.python.requirement_lists import (
    DEPENDENCIES,
    DEVELOPMENT,
    EXTRA,
    FILE,
    GROUP,
    TESTS,
    Manifest,
)
from watchtest.boxes.recipe.languages.python.requirements_files import included_files, uncompiled
from watchtest.boxes.recipe.project_files import ProjectFiles, table, texts

PROJECT = "pyproject.toml"


class PackageTool(Enum):
    """The tool that installs a project."""

    UV = "uv"
    POETRY = "poetry"
    PIPENV = "pipenv"
    PIP = "pip"

    @property
    def preparation(self) -> tuple[str, ...]:
        """Return a command that installs the tool unless the image has it; every image with Python has pip."""
        return () if self is PackageTool.PIP else (_tool(self.value),)

    def groups_by_default(self, files: ProjectFiles) -> list[str]:
        """Return the groups that the tool installs unless it is told otherwise."""
        project = files.toml(PROJECT) if files.has(PROJECT) else {}
        match self:
            case PackageTool.UV:
                defaults = table(project, "tool", "uv").get("default-groups", ["dev"])
                return list(table(project, "dependency-groups")) if defaults == "all" else texts(defaults)
            case PackageTool.POETRY:
                groups = {**table(project, "dependency-groups"), **table(project, "tool", "poetry", "group")}
                return ["dev", *(name for name in groups if not _is_optional(project, name))]
            case PackageTool.PIPENV:
                return ["dev-packages"]
            case PackageTool.PIP:
                return []


def tool_of(files: ProjectFiles) -> PackageTool:
    project = files.toml(PROJECT) if files.has(PROJECT) else {}
    is_uv = files.has("uv.lock") or ("project" in project and _uses(project, "uv"))
    if project and is_uv and not files.has("poetry.lock"):
        return PackageTool.UV
    if project and (files.has("poetry.lock") or _uses(project, "poetry")):
        return PackageTool.POETRY
    return PackageTool.PIPENV if files.has("Pipfile") and "project" not in project else PackageTool.PIP


def install_commands(
    tool: PackageTool, files: ProjectFiles, manifest: Manifest, chosen: ChosenDependencies
) -> list[str]:
    """Return the commands that run in the folder of the project once the tool is there."""
    project = files.toml(PROJECT) if files.has(PROJECT) else {}
    commands: list[str] = []
    match tool:
        case PackageTool.UV:
            commands.append(_uv(project, chosen, tool.groups_by_default(files)))
        case PackageTool.POETRY:
            commands.append(_poetry(project, chosen))
        case PackageTool.PIPENV:
            commands.append("pipenv sync --dev" if files.has("Pipfile.lock") else "pipenv install --dev --skip-lock")
        case PackageTool.PIP:
            commands += _pip(files, project, manifest, chosen)
    return [*commands, *_named(chosen.requirements)]


def _uses(project: Mapping[str, Any], tool: str) -> bool:
    return isinstance(table(project, "tool").get(tool), dict)


def _is_optional(project: Mapping[str, Any], group: str) -> bool:
    return table(project, "tool", "poetry", "group", group).get("optional") is True


def _tool(name: str) -> str:
    own = f"tools/{name}"
    steps = (f"python -m venv {own}", f"{own}/bin/pip install {name}", f"ln -sf ../{own}/bin/{name} bin/{name}")
    return f'command -v {name} || (cd "$VIRTUAL_ENV" && {" && ".join(steps)})'


def _uv(project: Mapping[str, Any], chosen: ChosenDependencies, defaults: list[str]) -> str:
    """Return the command for uv: `--inexact` keeps manual installations, `--python` overrides .python-version."""
    extras = [f"--extra {shlex.quote(name)}" for name in dict.fromkeys(chosen.names(EXTRA))]
    groups = [f"--group {shlex.quote(name)}" for name in dict.fromkeys(chosen.names(GROUP)) if name not in defaults]
    members = ["--all-packages"] if table(project, "tool", "uv", "workspace") else []
    return " ".join(['uv sync --active --inexact --python "$VIRTUAL_ENV/bin/python"', *extras, *groups, *members])


def _poetry(project: Mapping[str, Any], chosen: ChosenDependencies) -> str:
    groups = [f"--with {shlex.quote(name)}" for name in chosen.names(GROUP) if _is_optional(project, name)]
    extras = [f"--extras {shlex.quote(name)}" for name in chosen.names(EXTRA)]
    return " ".join(["poetry install --no-interaction", *groups, *extras])


# -- pip -------------------------------------------------------------------------------------------

COMPUTED_EXTRAS = """\
extras=$(python -c '
import importlib.metadata as m, os, re, sys
own = [d for d in m.distributions() if ("file://" + os.getcwd()) in (d.read_text("direct_url.json") or "")]
names = [e for d in own for e in d.metadata.get_all("Provides-Extra") or ()]
print(",".join(e for e in names if set(re.split("[^a-z]+", e.lower())) & set(sys.argv[1:])))' {words}) && \
{{ test -z "$extras" || pip install -e ".[$extras]"; }}"""
"""Installs the extras for tests of a project whose extras only its installed metadata tells."""


def _pip(
    files: ProjectFiles, project: Mapping[str, Any], manifest: Manifest, chosen: ChosenDependencies
) -> Iterator[str]:
    included = {inner for path in chosen.names(FILE) for inner in included_files(files, path)}
    for path in chosen.names(FILE):
        if path not in included:
            # Versions that were pinned for another Python, or are on no index any more, must not prevent the tests.
            variants = [f"pip install -r {shlex.quote(one)}" for one in (path, *uncompiled(files, path))]
            yield " || ".join(variants)
    extras = chosen.names(EXTRA)
    if manifest.is_installable:
        yield f"pip install -e {shlex.quote('.[' + ','.join(extras) + ']') if extras else '.'}"
        if manifest.has_computed_extras:
            yield COMPUTED_EXTRAS.format(words=" ".join(sorted(TESTS | DEVELOPMENT)))
    else:
        dependencies = [one for one in manifest.lists if one.kind == DEPENDENCIES] if "project" in project else []
        yield from _named(one for each in (*dependencies, *chosen.of_kind(EXTRA)) for one in each.requirements)
    yield from _named(one for each in chosen.of_kind(GROUP) for one in each.requirements)


def _named(requirements: Iterable[str]) -> list[str]:
    needed = list(dict.fromkeys(requirements))
    return [f"pip install {shlex.join(needed)}"] if needed else []
