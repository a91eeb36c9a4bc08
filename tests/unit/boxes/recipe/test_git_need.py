"""Which projects get git into their box."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
from support.project_recipes import snapshot_of

from watchtest.boxes.recipe import git_need
from watchtest.boxes.recipe.project_files import ProjectFiles


def project_files(files: dict[str, str], branch: str | None = "main") -> ProjectFiles:
    snapshot = replace(snapshot_of(files), branch=branch)
    return ProjectFiles(snapshot, lambda path, _entry: files[path].encode())


def requires(*names: str) -> str:
    return f"[build-system]\nrequires = {list(names)}\n"


@pytest.mark.parametrize(
    ("files", "user"),
    [
        ({"pyproject.toml": requires("setuptools>=61", "setuptools_scm[toml]>=6.2")}, "setuptools_scm"),
        ({"pyproject.toml": requires("setuptools", "setuptools-scm")}, "setuptools-scm"),
        ({"pyproject.toml": requires("hatchling", "hatch-vcs")}, "hatch-vcs"),
        ({"pyproject.toml": requires("setuptools", "setuptools-git-versioning>=2")}, "setuptools-git-versioning"),
        ({"pyproject.toml": requires("poetry-core", "poetry-dynamic-versioning")}, "poetry-dynamic-versioning"),
        ({"pyproject.toml": requires("pbr>=6")}, "pbr"),
        ({"pyproject.toml": "[tool.versioneer]\nVCS = 'git'\n"}, "versioneer"),
        ({"pyproject.toml": "[tool.pdm.version]\nsource = 'scm'\n"}, "pdm"),
        ({"setup.cfg": "[options]\nsetup_requires =\n  setuptools\n  setuptools_scm>=3\n"}, "setuptools_scm"),
        ({"setup.py": "setup(use_scm_version=True, setup_requires=['setuptools_scm'])\n"}, "setup.py"),
        ({"setup.py": "import versioneer\n"}, "setup.py"),
        ({"conftest.py": "subprocess.check_output(['git', 'rev-parse', 'HEAD'])\n"}, "conftest.py"),
        ({"tests/conftest.py": "os.popen('git describe')\n"}, "tests/conftest.py"),
        (
            {"pyproject.toml": requires("setuptools>=61", "wheel"), "setup.py": "setup(url='https://github.com/x')\n"},
            "",
        ),
        ({"pyproject.toml": requires("hatchling"), "conftest.py": "# see git log\nname = 'digital'\n"}, ""),
        ({}, ""),
    ],
)
def test_what_calls_git_is_named(files: dict[str, str], user: str) -> None:
    found = git_need.user_of_git(project_files(files))
    assert found == user
    commands = git_need.commands(project_files(files))
    assert bool(commands) == bool(user)
    assert all(f"which {user} uses" in command for command in commands)


def test_outside_of_a_repository_nothing_is_installed() -> None:
    assert git_need.commands(project_files({"pyproject.toml": requires("setuptools-scm")}, branch=None)) == ()


def test_setup_goes_on_without_git_and_nothing_is_installed_outside_of_a_container() -> None:
    environ = {"PATH": "/nowhere", "VIRTUAL_ENV": "/home/me/.cache/boxes/x/venv"}
    done = subprocess.run(
        ["/bin/sh", "-c", git_need.INSTALL % "pbr"], env=environ, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.startswith("git, which pbr uses, cannot be installed here")
    assert "apt-get" not in done.stderr
