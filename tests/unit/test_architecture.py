"""Where every line lives: layers, outside libraries, names and sizes. Read from the source, so nothing is executed."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from watchtest.commands import COMMANDS

ROOT = Path(__file__).parents[2] / "watchtest"
MODULES = sorted(ROOT.rglob("*.py"))
UNIT_TESTS = Path(__file__).parent
ABOUT_ALL = {"test_architecture.py", "test_engine_script.py"}
"""Unit tests of no single module."""

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"exit_codes"}),
    frozenset({"__init__", "core", "agent", "errors"}),
    frozenset({"workspace", "runners"}),
    frozenset({"config", "watcher_log"}),
    frozenset({"sources", "boxes", "history"}),
    frozenset({"selection"}),
    frozenset({"views"}),
    frozenset({"control"}),
    frozenset({"execution", "memory"}),
    frozenset({"pipeline"}),
    frozenset({"loop", "wiring"}),
    frozenset({"app"}),
    frozenset({"client"}),
    frozenset({"commands"}),
    frozenset({"cli"}),
    frozenset({"__main__"}),
)
"""From the bottom to the top. A module imports from its own part and from the layers below it."""
PURE = {"core": set[str](), "agent": {"pytest", "watchtest_agent"}}
"""Parts that import nothing of the rest, and of outside libraries only these."""

OUTSIDE = {
    "docker": ("boxes/docker/", "boxes/inventory.py"),
    "requests": ("boxes/docker/engine_errors.py",),
    "watchfiles": ("sources/streams.py",),
    "git": ("sources/git.py",),
    "rich": ("views/", "client/history_tables.py", "commands/history/", "commands/help.py"),
    "sqlite3": ("history/store/database.py",),
    "desktop_notifier": ("views/notify/native_channel.py",),
    "dbus_fast": ("views/notify/dbus_channel.py",),
    "pydantic": ("config/", "control/api/"),
    "pydantic_core": ("config/", "control/api/"),
    "inotify_simple": ("sources/inotify.py",),
    "pathspec": ("sources/globs.py",),
    "filelock": ("workspace/", "client/", "commands/", "history/store/database_file.py"),
    "platformdirs": ("workspace/user_dirs.py",),
    "packaging": ("boxes/recipe/languages/",),
    "json5": ("boxes/recipe/project_files.py",),
    "starlette": ("control/api/routes.py",),
    "prometheus_client": ("control/metrics.py",),
    "uvicorn": ("control/uvicorn_server.py",),
    "pytest": ("agent/in_pytest/", "agent/warm/warmup.py"),
}
"""The places that import an outside library."""

MOST_MODULES = 17
"""In one folder, without its `__init__`. The folder of commands has one file per command instead."""
VERB_FORM = re.compile(r"(^|_)\w+ing$")
NOUNS = {"wiring", "caching"}
TWICE = {
    "prune": "`watchtest prune` and `watchtest history prune`",
    "policy": "the command, and the rules it changes",
}
"""Module names that two files share, and why."""


def imports(file: Path) -> Iterator[str]:
    """Yield the full name of every module that a file imports, at the top or later."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = ["watchtest", *file.relative_to(ROOT).parts[: -node.level]]
            yield ".".join([*parts, node.module or ""]).rstrip(".")


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def part_of(file: Path) -> str:
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


def parts_used(file: Path) -> set[str]:
    """Return the parts of watchtest that a file imports: `core`, `boxes`, `errors` …"""
    used = {name.split(".")[1] for name in imports(file) if name.startswith("watchtest.")}
    return used - {"__version__", part_of(file)}


def outside(file: Path) -> set[str]:
    tops = {name.split(".")[0] for name in imports(file)}
    return {top for top in tops if top not in sys.stdlib_module_names and top != "watchtest"} | (tops & OUTSIDE.keys())


def below(part: str) -> set[str]:
    [level] = [number for number, layer in enumerate(LAYERS) if part in layer]
    return {name for layer in LAYERS[:level] for name in layer}


@pytest.mark.parametrize("file", MODULES, ids=name_of)
def test_a_module_imports_from_the_layers_below_it(file: Path) -> None:
    part = part_of(file)
    if part in PURE:
        assert parts_used(file) == set()
        assert outside(file) <= PURE[part]
    else:
        assert parts_used(file) <= below(part)


@pytest.mark.parametrize("file", MODULES, ids=name_of)
def test_an_outside_library_is_imported_in_one_place(file: Path) -> None:
    for library in outside(file) & OUTSIDE.keys():
        assert name_of(file).startswith(OUTSIDE[library]), f"{library} belongs to {OUTSIDE[library]}"


def test_every_outside_library_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {line.split(">")[0].split("[")[0].strip().lower() for line in project["dependencies"]}
    names = {
        "desktop_notifier": "desktop-notifier",
        "dbus_fast": "dbus-fast",
        "pydantic_core": "pydantic",
        "requests": "docker",
        "inotify_simple": "inotify-simple",
        "prometheus_client": "prometheus-client",
    }
    used = {library for file in MODULES for library in outside(file)} - {"pytest", "watchtest_agent", "sqlite3"}
    used.add("desktop_notifier")  # imported by importlib
    assert {names.get(library, library) for library in used} == declared


def test_no_folder_is_crowded() -> None:
    sizes: dict[str, int] = defaultdict(int)
    for file in MODULES:
        sizes[file.parent.relative_to(ROOT).as_posix()] += file.name != "__init__.py"
    del sizes["commands"]
    assert {folder: size for folder, size in sizes.items() if size > MOST_MODULES} == {}


def test_no_two_modules_share_a_name() -> None:
    files: dict[str, list[str]] = defaultdict(list)
    for file in MODULES:
        files[file.stem].append(name_of(file))
    del files["__init__"]
    assert {stem for stem, places in files.items() if len(places) > 1} == TWICE.keys()


def test_no_two_classes_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in MODULES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name_of(file))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


@pytest.mark.parametrize("file", MODULES, ids=name_of)
def test_no_module_is_named_by_a_verb_form(file: Path) -> None:
    assert file.stem in NOUNS or not VERB_FORM.search(file.stem)


@pytest.mark.parametrize("file", MODULES, ids=name_of)
def test_every_module_says_what_it_is_for(file: Path) -> None:
    assert ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "test", sorted(UNIT_TESTS.rglob("test_*.py")), ids=lambda test: str(test.relative_to(UNIT_TESTS))
)
def test_a_unit_test_lies_where_its_module_does(test: Path) -> None:
    """`tests/unit/core/test_step.py`, or also `test_step_laws.py` if one file is not enough."""
    folder = ROOT / test.parent.relative_to(UNIT_TESTS)
    name = test.stem.removeprefix("test_")
    modules = [module.stem for module in folder.glob("*.py")]
    assert test.name in ABOUT_ALL or any(f"{name}_".startswith(f"{module}_") for module in modules)


def test_every_command_has_its_own_module() -> None:
    modules = {file.stem for file in (ROOT / "commands").glob("*.py")} - {"__init__"}
    assert modules | {"history"} == set(COMMANDS)
