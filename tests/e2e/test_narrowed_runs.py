"""A workspace with several languages under a real watcher: a save runs what it can affect, as each runner decides."""

from __future__ import annotations

import shutil
from pathlib import Path

import platformdirs
import pytest
from support.projects import MakeProject
from support.watcher_process import Project, Watcher

SAMPLES = Path(__file__).parents[1] / "samples"
LIMIT_S = 60.0
SETTINGS = """
watch.rules = ["*.list -> lint"]

[[runners]]
kind = "go"

[[runners]]
kind = "pytest"

[[runners]]
kind = "command"
name = "lint"
command = "! grep -n TODO things.list"
"""


pytestmark = pytest.mark.go


@pytest.fixture
def project(tmp_path: Path, make_project: MakeProject) -> Project:
    project = make_project(tmp_path, "local")
    shutil.copytree(SAMPLES / "go", project.root, dirs_exist_ok=True)
    project.environ["GOCACHE"] = str(Path(platformdirs.user_cache_dir("watchtest-tests"), "go-build"))
    project.save("tests/test_it.py", "def test_one():\n    assert 1\n\ndef test_two():\n    assert len('ab') == 2\n")
    project.save("docs/guide.md", "# Guide\n")
    project.save("things.list", "pear\n")
    project.save("watchtest.toml", SETTINGS)
    return project


def ran(watcher: Watcher, verdict: str) -> tuple[int, str]:
    """Return how many tests the run behind the next verdict ran, and why."""
    status = watcher.wait_for_verdict(verdict)
    return sum(status["run_counts"].values()), status["scope"]["because"]


def edit(project: Project, path: str, old: str, new: str) -> None:
    text = (project.root / path).read_text(encoding="utf-8")
    assert old in text
    project.save(path, text.replace(old, new, 1))


def test_a_save_runs_of_each_language_what_it_can_affect(project: Project) -> None:
    watcher = project.watch(limit_s=LIMIT_S)
    assert ran(watcher, "passed")[0] == 9  # six in Go, two in Python, and the command
    edit(project, "internal/stock/stock.go", "stock[name]++", "stock[name] += 1")
    count, because = ran(watcher, "passed")
    assert count == 4, because
    assert "internal/stock/stock.go belongs to the package internal/stock" in because
    edit(project, "things.list", "pear", "TODO pear")
    count, because = ran(watcher, "failed")
    # Any package below may read a file at the top; the command runs because of its rule.
    assert count == 7, because
    edit(project, "tests/test_it.py", "ab", "ba")
    count, because = ran(watcher, "failed")
    assert count == 2, because  # one in Python, and the command, which is red
    edit(project, "things.list", "TODO pear", "pear")
    assert ran(watcher, "passed")[0] == 7
    project.save("docs/guide.md", "# Guide to it\n")
    count, because = ran(watcher, "passed")
    assert count == 0, because
    project.save("settings/shop.yaml", "open: true\n")
    count, because = ran(watcher, "passed")
    assert count == 6, because
    assert "settings/shop.yaml belongs to no package, so any package may read it" in because
    edit(project, "go.mod", "go 1.19", "go 1.18")
    assert ran(watcher, "passed")[0] == 9  # that makes a different environment
    watcher.must_be_tidy()
