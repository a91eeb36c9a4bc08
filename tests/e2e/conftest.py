"""What the end-to-end tests share: isolated projects, over the local box and over Docker."""

from __future__ import annotations

import importlib.metadata
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine.images import PYTHON_313
from support.needs import must_be_marked
from support.projects import KINDS, MakeProject, end
from support.watcher_process import Project, environ_around


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
        environ = environ_around(around, PYTHON_313)
        if kind == "local":
            link = f'cd "$VIRTUAL_ENV"/lib/python3*/site-packages && echo {shlex.quote(str(lone_pytest))} > pytest.pth'
            environ["WATCHTEST_BOX_SETUP"] = f"['{link}']"
            environ["WATCHTEST_BOX_SANDBOX"] = "off"  # which would hide that folder; test_bubblewrap.py has it on
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


@pytest.fixture
def docker_project(request: pytest.FixtureRequest, tmp_path: Path, make_project: MakeProject) -> Iterator[Project]:
    """The same in a container, for a test that is about containers."""
    must_be_marked(request, "docker")
    project = make_project(tmp_path, "docker")
    yield project
    end(project)
