"""What the end-to-end tests share: isolated projects, over the local box and over Docker."""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine.images import PYTHON_313
from watcher import Project

from watchtest.boxes.docker import remove_boxes

KINDS = ("local", pytest.param("docker", marks=pytest.mark.docker))
FOREIGN = ("WATCHTEST_", "PYTEST_", "COV_", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX", "XDG_")

MakeProject = Callable[..., Project]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of box; a test that takes it runs on each."""
    return str(request.param)


@pytest.fixture(scope="session")
def lone_pytest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pytest and what it needs, alone: the local box imports it from here instead of asking an index in each test."""
    folder = tmp_path_factory.mktemp("pytest-alone")
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        distribution = importlib.metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            (folder / top).symlink_to(Path(str(distribution.locate_file(top))))
    return folder


@pytest.fixture(scope="session")
def make_project(lone_pytest: Path) -> Iterator[MakeProject]:
    """Projects of any scope; their watchers and boxes end with the session at the latest."""
    made: list[Project] = []

    def make(around: Path, kind: str) -> Project:
        root = around / "my pröject"  # a blank and an umlaut, for all of them
        root.mkdir(parents=True)
        environ = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        environ |= {
            "HOME": str(around),
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
            "XDG_CONFIG_HOME": str(around / "config"),
            "WATCHTEST_CACHE_DIR": str(around / "cache"),
            "WATCHTEST_STATE_DIR": str(around / "state"),
            "WATCHTEST_NOTIFY_DESKTOP": "false",
            "WATCHTEST_BOX_IMAGE": PYTHON_313,
        }
        if kind == "local":
            link = f'cd "$VIRTUAL_ENV"/lib/python3*/site-packages && echo {shlex.quote(str(lone_pytest))} > pytest.pth'
            environ["WATCHTEST_BOX_SETUP"] = f"['{link}']"
        project = Project(root, around, kind, environ)
        made.append(project)
        return project

    yield make
    for project in made:
        end(project)


@pytest.fixture
def project(tmp_path: Path, kind: str, make_project: MakeProject) -> Iterator[Project]:
    """An empty workspace of this test's own."""
    project = make_project(tmp_path, kind)
    yield project
    end(project)


def end(project: Project) -> None:
    for watcher in project.watchers:
        if watcher.is_alive:
            watcher.kill9()
    if project.kind == "docker":
        remove_boxes(str(project.root), project.environ)
    shutil.rmtree(project.around / "cache", ignore_errors=True)
