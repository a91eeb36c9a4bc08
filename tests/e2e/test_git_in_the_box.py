"""The repository in the box, asked by commands and tests in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.git_repo import Repo
from support.projects import MakeProject, end
from support.watcher_process import Project

TEST = """import subprocess

def test_version():
    found = subprocess.run(["git", "describe", "--tags", "--dirty"], capture_output=True, text=True, check=True)
    assert found.stdout == "v1\\n", found.stdout
"""


def in_box(project: Project, *words: str) -> str:
    done = project.execute(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="the local box has the machine's git")
def test_commits_tags_and_edits_are_seen_by_git_in_the_box(tmp_path: Path, make_project: MakeProject) -> None:
    project = make_project(tmp_path, "local")
    repo = Repo(project.root)
    project.save("test_it.py", TEST)
    repo.commit()
    repo.git("tag", "v1")
    code, said = project.once("--plain")
    assert code == 0, said
    assert in_box(project, "git", "diff-index", "HEAD") == ""
    assert in_box(project, "git", "archive", "HEAD") != ""
    project.save("test_it.py", TEST + "\n")
    assert in_box(project, "git", "status", "--porcelain") == " M test_it.py\n"
    repo.commit()
    assert in_box(project, "git", "describe", "--tags").startswith("v1-1-g")
    assert in_box(project, "git", "rev-list", "--count", "HEAD") == "2\n"
    without = {"WATCHTEST_BOX_GIT": "false", "GIT_CEILING_DIRECTORIES": str(tmp_path)}
    done = project.command("exec", "--engine", "local", "--", "ls", "-A", env=without)
    assert ".git\n" not in done.stdout
    end(project)


VERSION = """import subprocess

NOW = subprocess.run(["git", "describe", "--tags"], capture_output=True, text=True, check=True).stdout.strip()
"""
TESTS = """import pathlib
import version

def test_version():
    assert version.NOW == "v1"

def test_other():
    assert True
"""


@pytest.mark.skipif(shutil.which("git") is None, reason="the local box has the machine's git")
def test_a_tag_alone_reruns_the_tests_that_ask_git_and_turns_them_red(
    tmp_path: Path, make_project: MakeProject
) -> None:
    project = make_project(tmp_path, "local")
    repo = Repo(project.root)
    project.save("version.py", VERSION)
    project.save("test_version.py", TESTS)
    project.save("test_far.py", "def test_far(): pass\n")
    project.save("notes.md", "1")
    repo.commit()
    repo.git("tag", "v1")
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    repo.git("tag", "-f", "-a", "-m", "x", "v2")
    project.save("notes.md", "2")
    red = watcher.wait_for_verdict("failed")
    assert [failure["id"] for failure in red["failures"]] == ["test_version.py::test_version"]
    assert "test_far" not in str(red["scope"])
    repo.git("tag", "-d", "v2")
    project.save("notes.md", "3")
    watcher.wait_for_verdict("passed")
    end(project)
