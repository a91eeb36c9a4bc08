"""Who may import whom, and which outside thing is imported where. Read from the source, so nothing is executed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "watchtest"
MODULES = sorted(ROOT.rglob("*.py"))
OUTSIDE = {
    "docker": ("boxes/docker/", "boxes/inventory.py"),
    "requests": ("boxes/docker/errors.py",),
    "watchfiles": ("sources/",),
    "git": ("sources/git.py",),
    "rich": ("views/", "commands/"),
    "sqlite3": ("history/database.py",),
    "desktop_notifier": ("views/notify/native.py",),
    "dbus_fast": ("views/notify/bus.py",),
    "pydantic": (
        "config/",
        "control/models.py",
        "control/eventmodels.py",
        "control/openapi.py",
        "control/operations.py",
    ),
    "inotify_simple": ("sources/inotify.py",),
    "pydantic_core": ("config/",),
    "pathspec": ("sources/globs.py",),
    "filelock": ("history/opening.py", "commands/", "lock.py"),
    "platformdirs": ("commands/",),
    "packaging": ("boxes/recipe/languages/",),
    "json5": ("boxes/recipe/projectfiles.py",),
    "starlette": ("control/routes.py", "control/streaming.py"),
    "prometheus_client": ("control/metrics.py",),
    "uvicorn": ("control/serving.py",),
    "pytest": ("agent/pytest_plugin.py", "agent/recording.py", "agent/warmup.py", "agent/worker_plugin.py"),
}
SEPARATE = ("boxes", "runners", "views", "sources", "history", "control")
"""Parts that never import one another: app.py and the pipeline put them together."""


def imports(file: Path) -> Iterator[str]:
    """Every module that a file imports, by its full name, wherever in the file it does."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield ".".join(["watchtest", *file.relative_to(ROOT).parts[:-1], node.module or ""]).rstrip(".")


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def own(file: Path) -> set[str]:
    """The parts of watchtest a file imports: `core`, `boxes`, `errors` …"""
    return {name.split(".")[1] for name in imports(file) if name.startswith("watchtest.")}


@pytest.mark.parametrize("file", MODULES, ids=name_of)
def test_each_module_imports_only_what_its_place_allows(file: Path) -> None:
    part = file.relative_to(ROOT).parts[0]
    if part == "core":
        assert own(file) <= {"core"}
        assert outside(file) == set()
    elif part == "agent":
        assert own(file) <= {"agent"}
        assert outside(file) <= {"pytest", "watchtest_agent"}
    elif part in SEPARATE:
        assert own(file).isdisjoint(set(SEPARATE) - {part} | {"app", "loop", "pipeline", "commands", "cli"})
    elif part in ("loop.py", "pipeline.py", "running.py", "carrier.py", "choosing.py"):
        assert own(file).isdisjoint({"app", "commands", "cli", "views", "config"})
    elif part == "app.py":
        assert own(file).isdisjoint({"commands", "cli"})


@pytest.mark.parametrize("file", MODULES, ids=name_of)
def test_each_outside_thing_is_imported_in_its_own_place(file: Path) -> None:
    name = name_of(file)
    for thing in outside(file) & OUTSIDE.keys():
        assert name.startswith(OUTSIDE[thing]), f"{name} imports {thing}, which belongs to {OUTSIDE[thing]}"


def outside(file: Path) -> set[str]:
    tops = {name.split(".")[0] for name in imports(file)}
    return {top for top in tops if top not in sys.stdlib_module_names and top != "watchtest"} | (tops & OUTSIDE.keys())


def test_every_outside_thing_is_a_declared_dependency() -> None:
    import tomllib

    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {line.split(">")[0].split("[")[0].strip().lower() for line in project["dependencies"]}
    names = {
        "git": "gitpython",
        "desktop_notifier": "desktop-notifier",
        "dbus_fast": "dbus-fast",
        "pydantic_core": "pydantic",
        "requests": "docker",
        "inotify_simple": "inotify-simple",
        "prometheus_client": "prometheus-client",
    }
    used = {thing for file in MODULES for thing in outside(file)} - {"pytest", "watchtest_agent", "sqlite3"}
    used.add("desktop_notifier")  # by importlib, so that its import can be listened to while it happens
    assert {names.get(thing, thing) for thing in used} == declared
