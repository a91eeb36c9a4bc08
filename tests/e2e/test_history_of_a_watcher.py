"""The history of real watchers: one killed in the middle of a run, and one with a test that fails at random."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.watcher_process import Project

QUICK = """
import pathlib, time, pytest

@pytest.mark.parametrize("number", range(5))
def test_quick(number):
    assert number < 4

def test_hangs():
    while pathlib.Path("hang.txt").exists():
        time.sleep(0.05)
"""
CHANCE = """
import pathlib

def test_chance():
    counter = pathlib.Path({counter!r})
    count = int(counter.read_text()) if counter.exists() else 0
    counter.write_text(str(count + 1))
    assert count % 2 == 0
"""


@pytest.fixture
def local(tmp_path: Path, make_project: Callable[..., Project]) -> Project:
    return make_project(tmp_path, "local")


def asked(project: Project, *words: str, code: int = 0) -> Any:
    ended = project.command("history", *words, "--json")
    assert ended.returncode == code, ended.stderr + ended.stdout
    return json.loads(ended.stdout)


def test_what_a_killed_watcher_had_shown_is_kept_and_its_run_is_broken(local: Project) -> None:
    local.save("test_a.py", QUICK)
    local.save("hang.txt", "")
    watcher = local.watch()

    def counts() -> dict[str, int]:
        return watcher.own_status.get("run_counts") or {}

    watcher.wait_until("five results are shown", lambda: counts().get("passed") == 4 and counts().get("failed") == 1)
    watcher.kill9()

    run = asked(local, "show")
    assert (run["state"], run["reason"]) == ("broken", "the watcher died")
    outcomes = sorted(result["outcome"] for result in run["results"])
    assert outcomes == ["failed", *["passed"] * 4]

    (local.root / "hang.txt").unlink()
    local.watch().wait_for_verdict("failed")
    kept = asked(local, "show", run["id"])
    assert (kept["state"], kept["reason"]) == ("broken", "the watcher died")
    assert len(kept["results"]) == 5


@pytest.mark.timeout(180)
def test_a_probe_proves_chance_on_one_tree_and_the_status_file_marks_it_and_stays_red(local: Project) -> None:
    counter = str(local.around / "counter")
    local.save("test_chance.py", CHANCE.format(counter=counter))
    name = "test_chance.py::test_chance"
    found = asked(local, "flaky", "--probe", name, "-n", "4", "--engine", "local", code=1)
    assert (found["times"], found["failed"], found["flaky"]) == (4, 2, True)
    assert [run["red"] for run in found["runs"]] == [False, True, False, True]
    runs = asked(local, "list")["runs"]
    assert {run["code"]["tree"] for run in runs} == {found["tree"]}

    (test,) = asked(local, "flaky")["tests"]
    assert (test["identity"], test["standing"], test["failures"]) == (name, "flaky", 2)

    Path(counter).write_text("1")
    watcher = local.watch()
    status = watcher.wait_for_verdict("failed")
    assert [(failure["id"], failure["flaky"]) for failure in status["failures"]] == [(name, True)]
