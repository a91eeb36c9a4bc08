"""Fixtures of the end-to-end tests: isolated projects in the local box and in Docker."""

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
    """The kind of box; a test that takes it runs once per kind."""
    return str(request.param)


@pytest.fixture(scope="session")
def lone_pytest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install only pytest and its dependencies, for the local box to import: no test needs a package index."""
    folder = tmp_path_factory.mktemp("pytest-alone")
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        distribution = importlib.metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            (folder / top).symlink_to(Path(str(distribution.locate_file(top))))
    return folder


@pytest.fixture(scope="session")
def make_project(lone_pytest: Path) -> Iterator[MakeProject]:
    """Return a function that makes projects for a fixture of any scope; their watchers and boxes end with the
    session."""
    made: list[Project] = []

    def make(around: Path, kind: str) -> Project:
        root = around / "my pröject"  # every path contains a blank and an umlaut
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
    """An empty workspace in a container, for a test about containers."""
    must_be_marked(request, "docker")
    project = make_project(tmp_path, "docker")
    yield project
    end(project)
