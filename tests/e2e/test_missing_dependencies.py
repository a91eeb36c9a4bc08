"""The dependencies of tests are installed without configuration.

What the first run lacks is added if the project names it; otherwise the report says what to do.
"""

from __future__ import annotations

import json
from contextlib import closing

import docker
import pytest
from engine.images import PYTHON_313
from support.watcher_process import Project
from support.wheels import BACKEND, write_wheel

PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "mine"
version = "1"
"""
WHEELS = {
    "PIP_FIND_LINKS": "/workspace/wheels",
    "PIP_NO_INDEX": "1",
    "WATCHTEST_BOX_ENVIRONMENT": '["PIP_FIND_LINKS", "PIP_NO_INDEX"]',
}

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]


def test_what_a_list_of_the_project_names_is_installed_once_and_remembered(docker_project: Project) -> None:
    project = docker_project
    write_wheel(project.root / "wheels")
    project.save("docs-requirements.txt", "till==1\n")
    project.save("test_it.py", "import till\ndef test_it(): assert till.OPEN\n")
    watcher = project.watch(env=WHEELS)
    watcher.wait_for_verdict("passed", limit_s=120)
    line = "installing till and running the tests again: tests need till; named by docs-requirements.txt"
    assert watcher.output.count(line) == 1
    watcher.stop()
    [file] = (project.around / "state" / "added-dependencies").iterdir()
    assert json.loads(file.read_text()) == ["till"]

    assert project.command("reset", "--engine", "docker", env=WHEELS, limit_s=120).returncode == 0
    code, said = project.once(env=WHEELS, limit_s=120)
    assert code == 0, said
    assert "installing till" not in said, "it was part of the setup"
    assert "till==1 (tests turned out to need this" in project.command("doctor", env=WHEELS, limit_s=120).stdout


def test_what_no_list_names_is_reported_and_not_installed(docker_project: Project) -> None:
    project = docker_project
    write_wheel(project.root / "wheels")
    project.save("test_it.py", "import till\ndef test_it(): pass\n")
    code, said = project.once(env=WHEELS, limit_s=120)
    assert code == 1
    assert (
        "tests need till, which no dependency list of the project names: `watchtest exec -- pip install till` tries it,"
        " box.setup keeps it"
    ) in said
    assert "pip install till" not in said.partition("tests need")[0]


@pytest.mark.thorough
def test_an_addition_that_cannot_be_installed_leaves_the_other_tests_their_box(docker_project: Project) -> None:
    project = docker_project
    project.save("docs-requirements.txt", "till==1\n")
    project.save("test_it.py", "import till\n")
    project.save("test_other.py", "def test_other(): pass\n")
    code, said = project.once(env={**WHEELS, "PIP_FIND_LINKS": "/nowhere"}, limit_s=120)
    assert code == 1
    assert "till==1 cannot be installed: tests go on without it" in said
    assert "tests need till, which setup did not provide" in said


@pytest.mark.thorough
def test_an_allowed_version_whose_image_is_there_needs_no_download(docker_project: Project) -> None:
    project = docker_project
    project.save("pyproject.toml", '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.7,<3.10"\n')
    project.save("test_it.py", "def test_it(): pass\n")
    with closing(docker.from_env(environment=project.environ)) as client:
        client.images.get(PYTHON_313).tag("python", "3.8-slim")
        try:
            code, said = project.once(env={"WATCHTEST_BOX_IMAGE": "auto"}, limit_s=120)
        finally:
            client.images.remove("python:3.8-slim", noprune=True)
    assert code == 0, said
    assert "requires-python >=3.7,<3.10; an image of 3.8 is here" in said
    assert "pulling" not in said


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("folder", "extras"),
    [
        ("", 'optional-dependencies.test = ["till"]'),
        ("", 'dynamic = ["optional-dependencies"]'),
        ("python/", 'optional-dependencies.test = ["till"]'),
    ],
    ids=["written", "computed by the build", "below the root"],
)
def test_a_package_is_installed_with_its_extra_for_tests(docker_project: Project, folder: str, extras: str) -> None:
    project = docker_project
    write_wheel(project.root / "wheels")
    project.save("crate/Cargo.toml", '[package]\nname = "crate"\n')
    project.save(f"{folder}pyproject.toml", PROJECT + extras + "\n")
    project.save(f"{folder}backend.py", BACKEND)
    project.save(f"{folder}src/mine/__init__.py", "PRICE = 3\n")
    project.save(
        f"{folder}tests/test_it.py", "import mine, till\ndef test_it(): assert till.OPEN and mine.PRICE == 3\n"
    )
    code, said = project.once(env=WHEELS, limit_s=120)
    assert code == 0, said
    assert "running the tests again" not in said
    assert "cargo" not in said
