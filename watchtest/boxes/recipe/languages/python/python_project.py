"""Python projects: recognize them, choose their image and install them for their tests.

A project is usually the root of the tree. If the root is no package, it may lie in folders below; each of them is
installed from its own folder.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Sequence

from watchtest.boxes.protocols import SetupChoice
from watchtest.boxes.recipe.languages.python.command_hints import command_hints
from watchtest.boxes.recipe.languages.python.dependency_choice import ChosenDependencies, choose_dependencies
from watchtest.boxes.recipe.languages.python.hatch_environments import hatch_requests
from watchtest.boxes.recipe.languages.python.install_commands import PROJECT, PackageTool, install_commands, tool_of
from watchtest.boxes.recipe.languages.python.manifests import members_of, read_manifest, workspace_lists
from watchtest.boxes.recipe.languages.python.missing_modules import requirement_for
from watchtest.boxes.recipe.languages.python.nox_sessions import nox_request
from watchtest.boxes.recipe.languages.python.python_versions import PIN, image_of, wanted_python
from watchtest.boxes.recipe.languages.python.requirement_lists import (
    DEPENDENCIES,
    FILE,
    RequirementList,
    distribution,
)
from watchtest.boxes.recipe.languages.python.requirements_files import included_files, requirements_files, uncompiled
from watchtest.boxes.recipe.languages.python.tox_environments import tox_request
from watchtest.boxes.recipe.project_files import ProjectFiles, table
from watchtest.boxes.recipe.recipe_input import RecipeInput
from watchtest.boxes.recipe.setup_plan import SetupPlan
from watchtest.core.impact_rules import CONFTEST, PYTEST_FILES
from watchtest.errors import ConfigError

NAME = "python"
SIGNS = ("setup.py", "setup.cfg", "Pipfile", "Pipfile.lock", "uv.lock", "poetry.lock", "pdm.lock", PIN)
TEST_SIGNS = (*PYTEST_FILES, "tox.ini", CONFTEST, f"tests/{CONFTEST}")
REQUIREMENTS = ("requirements*.txt", "*-requirements.txt")
OWN_TOOLS = frozenset({"poetry", "pdm", "hatch", "setuptools", "pytest"})
MANIFESTS = (PROJECT, "setup.py", "setup.cfg")
READ = (*MANIFESTS, PIN, "Pipfile", "Pipfile.lock", "uv.lock", "poetry.lock", "pdm.lock")


def is_used(files: ProjectFiles) -> bool:
    if any(files.has(path) for path in (*SIGNS, *TEST_SIGNS)) or files.matching(REQUIREMENTS):
        return True
    project = files.toml(PROJECT) if files.has(PROJECT) else {}
    # Projects in other languages may keep the settings of linters in this file.
    return "project" in project or "build-system" in project or not OWN_TOOLS.isdisjoint(table(project, "tool"))


def image(files: ProjectFiles, inputs: RecipeInput) -> tuple[str, str]:
    return image_of([files.below(folder) for folder in python_folders(files)], inputs)


def plan(files: ProjectFiles, inputs: RecipeInput) -> SetupPlan:
    views = [files.below(folder) for folder in python_folders(files)]
    version, _ = wanted_python(views, inputs)
    plans = [_plan_in(view, version) for view in views]
    if inputs.additions:
        plans.append(_added(named_lists(files), inputs.additions))
    return SetupPlan(
        tuple(dict.fromkeys(command for each in plans for command in each.commands)),
        tuple(choice for each in plans for choice in each.choices),
        tuple(path for each in plans for path in each.files),
    )


def _plan_in(files: ProjectFiles, version: tuple[int, int]) -> SetupPlan:
    """Return the plan for the root or for a folder below it; the commands run there."""
    manifest, tool, chosen = read_manifest(files), tool_of(files), _chosen_in(files, version)
    commands = install_commands(tool, files, manifest, chosen)
    choices = [*chosen.choices]
    if tool in (PackageTool.PIP, PackageTool.UV) and not manifest.is_installable and _has_source_folder(files):
        commands.append(SOURCE_ON_PATH)
        choices.append(SetupChoice("src/ on Python's path", True, "the code in it belongs to no package"))
    sources = [path for name in chosen.names(FILE) for path in (name, *uncompiled(files, name))]
    included = [inner for path in sources for inner in included_files(files, path)]
    members = [f"{folder}/{PROJECT}" for folder in members_of(files)]
    read = [path for path in (*READ, *members, *sources, *included) if files.has(path)]
    inside, prefix = (f"{files.folder}: ", f"cd {shlex.quote(files.folder)} && ") if files.folder else ("", "")
    return SetupPlan(
        (*tool.preparation, *(prefix + command for command in commands)),
        tuple(SetupChoice(inside + one.what, one.is_chosen, one.because) for one in choices),
        tuple(files.path_in_tree(path) for path in read),
    )


SOURCE_ON_PATH = (
    """echo "$PWD/src" > "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/watchtest-src.pth\""""
)


def _has_source_folder(files: ProjectFiles) -> bool:
    has_code = any(path.startswith("src/") and path.endswith(".py") for path in files.paths)
    return has_code and not files.has("src/__init__.py")


def _chosen_in(files: ProjectFiles, version: tuple[int, int]) -> ChosenDependencies:
    tool = tool_of(files)
    found = (tox_request(files, version), nox_request(files), *hatch_requests(files))
    environments = [request for request in found if request is not None]
    named = [path for request in environments for path in request.files]
    lists = [*workspace_lists(files), *(requirements_files(files, named) if tool is PackageTool.PIP else ())]
    return choose_dependencies(lists, environments, command_hints(files), tool.groups_by_default(files))


def provided(files: ProjectFiles, inputs: RecipeInput) -> set[str]:
    """Return the distributions that the setup of a project installs, as far as its files tell."""
    views = [files.below(folder) for folder in python_folders(files)]
    version, _ = wanted_python(views, inputs)
    chosen = [_chosen_in(view, version) for view in views]
    main = [one for view in views for one in workspace_lists(view) if one.kind == DEPENDENCIES]
    lists = [*main, *(one for each in chosen for one in each.lists)]
    requirements = [one for each in lists for one in each.requirements]
    more = [one for each in chosen for one in each.requirements]
    return {*map(distribution, (*requirements, *more)), *inputs.additions}


def named_lists(files: ProjectFiles) -> list[RequirementList]:
    """Return every list of the project that names requirements, whether it is installed or not."""
    views = [files.below(folder) for folder in python_folders(files)]
    found = [one for view in views for one in (*workspace_lists(view), *requirements_files(view))]
    hints = [hint for view in views for hint in command_hints(view)]
    return [*found, *(RequirementList("command", "", hint.origin, tuple(hint.requirements)) for hint in hints)]


def _added(lists: Sequence[RequirementList], additions: Sequence[str]) -> SetupPlan:
    """Return the plan for distributions that tests turned out to need, as far as the project still allows them."""
    offers = [offer for name in additions if (offer := requirement_for(name, lists)) is not None]
    choices = tuple(
        SetupChoice(requirement, True, f"tests turned out to need this; {where}") for requirement, where in offers
    )
    return SetupPlan(tuple(_tolerant(requirement) for requirement, _ in offers), choices)


def _tolerant(requirement: str) -> str:
    """Return a command that installs a requirement; a failure must not take the box away from all other tests."""
    left_out = shlex.quote(f"{requirement} cannot be installed: tests go on without it")
    return f"pip install {shlex.quote(requirement)} || echo {left_out}"


# -- projects below the root -----------------------------------------------------------------------

DEPTH_LIMIT = 2
FOLDER_LIMIT = 10
SAMPLE_FOLDER = re.compile(
    r"(^|/)(\..*|tests?|testing|docs?|examples?|samples?|node_modules|vendor(ed)?|third_party|fixtures|.*\{.*"
    r"|templates?|bench(marks?)?|site-packages|build|dist)(/|$)"
)
TEST_FILE = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_test)\.py")


@functools.lru_cache(maxsize=1)
def python_folders(files: ProjectFiles) -> Sequence[str]:
    """Return the folders to install: the root, and packages below it if the root is none."""
    project = files.toml(PROJECT) if files.has(PROJECT) else {}
    if tool_of(files) is not PackageTool.PIP or "project" in project or read_manifest(files).is_installable:
        return [""]
    nested = [folder for folder in files.folders_with(MANIFESTS) if _may_be_package(folder)]
    packages = [folder for folder in nested if _is_package(files.below(folder))]
    with_tests = [folder for folder in packages if any(TEST_FILE.fullmatch(path) for path in files.below(folder).paths)]
    return ["", *(with_tests or packages)[:FOLDER_LIMIT]]


def _may_be_package(folder: str) -> bool:
    return folder.count("/") <= DEPTH_LIMIT and not SAMPLE_FOLDER.search(folder)


def _is_package(files: ProjectFiles) -> bool:
    """Return whether the folder is a package. A package file that is only half written is reported later."""
    try:
        project = files.toml(PROJECT) if files.has(PROJECT) else {}
    except ConfigError:
        return "[project]" in files.text(PROJECT)
    return "project" in project or tool_of(files) is not PackageTool.PIP or read_manifest(files).is_installable
