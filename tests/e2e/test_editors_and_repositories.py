"""How editors save, and what doctor reports about repositories that look different from each lane."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.git_repo import Repo
from support.watcher_process import Project

GREEN = "def test_it():\n    assert 1\n"


@pytest.fixture
def kind() -> str:
    """What the host does before a sync is the same for every kind of box."""
    return "local"


def by_vim(file: Path) -> None:
    """Save as vim does when it keeps backups: a backup, a rename and a new file."""
    command = ["vim", "-u", "NONE", "-es", "-c", "set backup backupcopy=no writebackup", "-c", "normal Go# by vim"]
    subprocess.run([*command, "-c", "wq", str(file)], check=True, timeout=20, stdin=subprocess.DEVNULL)


def by_rename(file: Path) -> None:
    other = file.with_suffix(".tmp~")
    other.write_text(file.read_text() + "# by rename\n")
    other.replace(file)


def twice(file: Path) -> None:
    """Save as an editor does that calls a formatter right afterwards."""
    file.write_text(file.read_text() + "#   unformatted\n")
    time.sleep(0.02)
    file.write_text(file.read_text().replace("#   unformatted", "# formatted"))


@pytest.mark.parametrize("save", [pytest.param(by_vim, marks=pytest.mark.vim), by_rename, twice])
def test_every_way_of_saving_is_one_cycle(project: Project, save: Callable[[Path], None]) -> None:
    project.save("test_it.py", GREEN)
    # On a busy machine the two halves of a save may be further apart than usual.
    watcher = project.watch(env={"WATCHTEST_WATCH_DEBOUNCE_MS": "500"})
    watcher.wait_for_verdict("passed")
    watcher.wait_for_words(" passed ")
    before = watcher.output.count(" passed ")
    save(project.root / "test_it.py")
    watcher.wait_for_verdict("passed")
    watcher.wait_until("the verdict is reported", lambda: watcher.output.count(" passed ") > before)
    assert watcher.output.count(" passed ") - before == 1, "the work may begin with the first write; one verdict counts"


def test_a_touch_and_the_same_bytes_again_run_nothing(project: Project) -> None:
    project.save("test_it.py", GREEN)
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    before = watcher.output.count(" running ")
    os.utime(project.root / "test_it.py")
    watcher.wait_for_words("no content changed, nothing to run")
    project.save("test_it.py", GREEN)
    watcher.wait_until("both seen", lambda: watcher.output.count("no content changed") == 2)
    assert watcher.output.count(" running ") == before


def test_a_rename_of_case_alone_arrives(project: Project) -> None:
    project.save("test_it.py", GREEN)
    project.save("readme.txt", "x")
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    (project.root / "readme.txt").rename(project.root / "README.txt")
    watcher.wait_for_verdict("passed")
    assert project.box_tree() == project.tree()
    assert "README.txt" in project.box_tree()


@pytest.mark.thorough
def test_a_sparse_checkout_is_whole_in_the_git_lanes_and_doctor_says_so(project: Project) -> None:
    repo = Repo(project.root)
    repo.save("test_it.py", GREEN)
    repo.save("far/away.txt", "x")
    repo.save("near/by.txt", "x")
    repo.commit()
    repo.git("sparse-checkout", "set", "near")
    assert not (project.root / "far").exists()
    watcher = project.watch("--trigger=save=all", "--trigger=commit=all")

    def both_known() -> bool:
        lanes = watcher.own_status.get("lanes") or {}
        return all(lanes.get(name) and lanes[name]["verdict"] == "passed" for name in ("save", "commit"))

    watcher.wait_until("both verdicts", both_known)
    assert "far/away.txt" not in project.box_tree("save")
    assert "far/away.txt" in project.box_tree("commit")
    said = project.command("doctor", env={"WATCHTEST_BOX_ENGINE": "local"})
    assert said.returncode == 0, said
    assert "a sparse checkout: stage and commit lanes test the whole tree" in said.stdout


def test_doctor_names_filters_hindrances_and_what_is_left_out(project: Project) -> None:
    repo = Repo(project.root)
    repo.save("test_it.py", GREEN)
    repo.commit()
    repo.git("config", "core.autocrlf", "true")
    os.mkfifo(project.root / "pipe")
    (project.root / ".git" / "MERGE_HEAD").write_text("0" * 40)
    said = project.command("doctor", env={"WATCHTEST_BOX_ENGINE": "local"}).stdout
    assert "core.autocrlf is set" in said
    assert "waiting: a merge is in progress" in said
    assert "pipe: is a named pipe" in said
