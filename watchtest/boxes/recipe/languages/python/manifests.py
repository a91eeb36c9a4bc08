"""Read the requirement lists of a project from pyproject.toml, setup.cfg, setup.py and Pipfile. Executes nothing."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from packaging.dependency_groups import resolve_dependency_groups

from watchtest.boxes.recipe.languages.python.poetry_requirements import requirements_of
from watchtest.boxes.recipe.languages.python.requirement_lists import (
    DEPENDENCIES,
    EXTRA,
    GROUP,
    Manifest,
    RequirementList,
    normalized,
    with_own_extras,
)
from watchtest.boxes.recipe.languages.python.requirements_files import included_requirements
from watchtest.boxes.recipe.languages.python.setup_script import UNKNOWN, setup_arguments, strings
from watchtest.boxes.recipe.project_files import ProjectFiles, table, texts
from watchtest.errors import ConfigError

PROJECT, SETTINGS, SCRIPT, PIPFILE = "pyproject.toml", "setup.cfg", "setup.py", "Pipfile"


def read_manifest(files: ProjectFiles) -> Manifest:
    """Return what the files of the project say, with requirements of the project on itself resolved."""
    project = files.toml(PROJECT) if files.has(PROJECT) else {}
    own = table(project, "project").get("name") or table(project, "tool", "poetry").get("name")
    own = own if isinstance(own, str) else _own_name(files)
    found = [*_from_pyproject(project, files), *_from_settings(files), *_from_script(files), *_from_pipfile(files)]
    extras = {normalized(one.name): one.requirements for one in reversed(found) if one.kind == EXTRA}
    lists: dict[tuple[str, str], RequirementList] = {}
    for one in found:
        key = (one.kind, normalized(one.name))
        before = lists.setdefault(key, RequirementList(one.kind, one.name, one.path))
        # Several files may describe the project; the first one counts, pyproject.toml before all others.
        if before.path == one.path or not before.requirements:
            more = with_own_extras(one.requirements, own, extras)
            lists[key] = RequirementList(one.kind, one.name, one.path, (*before.requirements, *more))
    return Manifest(tuple(lists.values()), own, _is_installable(files, project), _has_computed_extras(files, project))


def members_of(files: ProjectFiles) -> list[str]:
    """Return the folders of the members of a uv workspace, which share its environment."""
    project = files.toml(PROJECT) if files.has(PROJECT) else {}
    workspace = table(project, "tool", "uv", "workspace")
    members, excluded = (
        files.matching(tuple(f"{glob.rstrip('/')}/{PROJECT}" for glob in globs)) if globs else []
        for globs in (texts(workspace.get("members")), texts(workspace.get("exclude")))
    )
    return [path.rpartition("/")[0] for path in members if path not in excluded]


def workspace_lists(files: ProjectFiles) -> list[RequirementList]:
    """Return the lists of a project and of the members of its workspace."""
    found = list(read_manifest(files).lists)
    for folder in members_of(files):
        try:
            inner = read_manifest(files.below(folder)).lists
        except ConfigError:
            continue  # uv reports it
        found += [RequirementList(one.kind, one.name, f"{folder}/{one.path}", one.requirements) for one in inner]
    return found


def _own_name(files: ProjectFiles) -> str:
    name = files.ini(SETTINGS).get("metadata", "name", fallback=None) or setup_arguments(files.text(SCRIPT)).get("name")
    return name if isinstance(name, str) else ""


def _is_installable(files: ProjectFiles, project: Mapping[str, Any]) -> bool:
    """Return whether the project is a package; without a build system, its own code is used from its folder."""
    has_metadata = "project" in project or bool(table(project, "tool", "flit", "metadata"))
    if has_metadata and "build-system" in project:
        return True
    settings = files.ini(SETTINGS)
    return files.has(SCRIPT) or settings.has_section("metadata") or settings.has_section("options")


def _has_computed_extras(files: ProjectFiles, project: Mapping[str, Any]) -> bool:
    """Return whether the build computes extras that are written in no file."""
    given = setup_arguments(files.text(SCRIPT)).get("extras_require", {})
    if given is UNKNOWN or (isinstance(given, dict) and UNKNOWN in given):
        return True
    is_dynamic = "optional-dependencies" in texts(table(project, "project").get("dynamic"))
    is_static = (
        bool(table(project, "tool", "setuptools", "dynamic", "optional-dependencies"))
        or bool(given)
        or files.ini(SETTINGS).has_section("options.extras_require")
    )
    return is_dynamic and not is_static


# -- pyproject.toml --------------------------------------------------------------------------------


def _from_pyproject(project: Mapping[str, Any], files: ProjectFiles) -> Iterator[RequirementList]:
    metadata = table(project, "project")
    dynamic = table(project, "tool", "setuptools", "dynamic")
    named = {**table(dynamic, "optional-dependencies"), **table(metadata, "optional-dependencies")}
    yield _listed(DEPENDENCIES, "", _texts_or_files(metadata.get("dependencies", dynamic.get("dependencies")), files))
    yield from (_listed(EXTRA, name, _texts_or_files(value, files)) for name, value in named.items())
    flit = table(project, "tool", "flit", "metadata")
    yield _listed(DEPENDENCIES, "", texts(flit.get("requires")))
    yield from (_listed(EXTRA, name, texts(value)) for name, value in table(flit, "requires-extra").items())
    yield from (_listed(GROUP, name, found) for name, found in _groups(files.text(PROJECT)).items())
    yield from _of_tools(table(project, "tool"))


def _of_tools(tools: Mapping[str, Any]) -> Iterator[RequirementList]:
    if older := texts(table(tools, "uv").get("dev-dependencies")):
        yield _listed(GROUP, "dev", older)
    for name, value in table(tools, "pdm", "dev-dependencies").items():
        yield _listed(GROUP, name, [one for one in texts(value) if not one.startswith("-")])
    poetry = table(tools, "poetry")
    main = requirements_of(table(poetry, "dependencies"))
    yield _listed(DEPENDENCIES, "", main.values())
    if older_group := table(poetry, "dev-dependencies"):
        yield _listed(GROUP, "dev", requirements_of(older_group).values())
    for name, group in table(poetry, "group").items():
        yield _listed(GROUP, name, requirements_of(table(group, "dependencies")).values())
    for name, value in table(poetry, "extras").items():
        yield _listed(EXTRA, name, [main.get(normalized(one), one) for one in texts(value)])


def _listed(kind: str, name: str, requirements: Any, path: str = PROJECT) -> RequirementList:
    return RequirementList(kind, name, path, tuple(requirements))


def _texts_or_files(value: Any, files: ProjectFiles) -> list[str]:
    """Return the requirements that setuptools takes from a list, or from the files that a table names."""
    named = table(value).get("file")
    paths = [named] if isinstance(named, str) else texts(named)
    return texts(value) or [one for path in paths for one in included_requirements(files, path)]


@functools.lru_cache(maxsize=16)
def _groups(text: str) -> Mapping[str, list[str]]:
    """Return the requirements of each dependency group; resolving them is slow."""
    groups = table(tomllib.loads(text), "dependency-groups")
    return {name: _resolved(groups, name) for name in groups}


def _resolved(groups: Mapping[str, Any], name: str) -> list[str]:
    """Return the requirements of a dependency group (PEP 735) and of the groups that it includes."""
    try:
        return list(resolve_dependency_groups(groups, name))
    except (ValueError, TypeError, LookupError, ExceptionGroup):
        return []  # an invalid group, which pip would not install either


# -- setuptools and pipenv -------------------------------------------------------------------------


def _from_settings(files: ProjectFiles) -> Iterator[RequirementList]:
    settings = files.ini(SETTINGS)

    def lines(section: str, key: str) -> list[str]:
        value = str(settings.get(section, key, fallback=""))
        if value.strip().startswith("file:"):
            paths = value.strip().removeprefix("file:").split(",")
            return [one for path in paths for one in included_requirements(files, path.strip())]
        return [line.strip() for line in value.splitlines() if line.strip()]

    if settings.has_option("options", "install_requires"):
        yield _listed(DEPENDENCIES, "", lines("options", "install_requires"), SETTINGS)
    if settings.has_option("options", "tests_require"):
        yield _listed(GROUP, "tests_require", lines("options", "tests_require"), SETTINGS)
    section = "options.extras_require"
    for name in settings.options(section) if settings.has_section(section) else ():
        yield _listed(EXTRA, name, lines(section, name), SETTINGS)


def _from_script(files: ProjectFiles) -> Iterator[RequirementList]:
    given = setup_arguments(files.text(SCRIPT))
    yield _listed(DEPENDENCIES, "", strings(given.get("install_requires")), SCRIPT)
    if needed := strings(given.get("tests_require")):
        yield _listed(GROUP, "tests_require", needed, SCRIPT)
    extras = given.get("extras_require")
    for name, value in extras.items() if isinstance(extras, dict) else ():
        # ":python_version < '3.9'" stands for a condition without an extra.
        if isinstance(name, str) and (extra := name.partition(":")[0]):
            yield _listed(EXTRA, extra, strings(value), SCRIPT)


def _from_pipfile(files: ProjectFiles) -> Iterator[RequirementList]:
    if not files.has(PIPFILE):
        return
    content = files.toml(PIPFILE)
    yield _listed(DEPENDENCIES, "", requirements_of(table(content, "packages")).values(), PIPFILE)
    yield _listed(GROUP, "dev-packages", requirements_of(table(content, "dev-packages")).values(), PIPFILE)
