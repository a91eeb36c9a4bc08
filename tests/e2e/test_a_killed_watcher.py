"""`kill -9` at any moment: the next watcher adopts the box, syncs it with the tree, and reports the right verdict."""

from __future__ import annotations

import random
import sys
import time
import uuid
from collections.abc import Callable

import pytest
from support.watcher_process import Project, Watcher, wait_for

SEED = 4711
ROUNDS = 1

# With `hang.txt` it starts a process that leaves its session and its parents, and then never ends.
TEST = """import os, pathlib, subprocess, sys, time

LEAVE = "import os, sys; os.fork() and os._exit(0); os.setsid(); os.execvp('sleep', ['sleep', sys.argv[1]])"

def test_value():
    if pathlib.Path("hang.txt").exists():
        subprocess.Popen([sys.executable, "-c", LEAVE, "{marker}"], env={{"PATH": os.environ["PATH"]}})
        subprocess.Popen(["sleep", "{marker}"], start_new_session=True)
        time.sleep(60)
    assert pathlib.Path("value.txt").read_text() == "right"
"""


class Scene:
    """A project whose run can be made to hang, with runaway processes that can be recognised."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.random = random.Random(SEED)
        self.marker = f"9{uuid.uuid4().int % 10**8}.25"
        project.save("test_value.py", TEST.format(marker=self.marker))
        project.save("value.txt", "right")

    def runaways(self) -> list[str]:
        """Return the runaways that have finished starting; the others are still on their way, or are shells around
        them."""
        return [line for line in self.project.box_processes() if line.strip() == f"sleep {self.marker}"]

    def agents(self) -> list[str]:
        home = "/opt/watchtest" if self.project.kind == "docker" else str(self.project.local_box() / "home")
        return [line for line in self.project.box_processes() if home in line and "-I -c" in line]

    def pause(self, most_s: float) -> None:
        time.sleep(self.random.random() * most_s)  # the random moment is the point of the test

    # -- moments of death --------------------------------------------------------------------------

    def starting(self) -> Watcher:
        watcher = self.project.watch()
        self.pause(0.8)
        return watcher

    def syncing(self) -> Watcher:
        for number in range(200):
            self.project.save(f"data/{number}.bin", self.random.randbytes(20_000))
        watcher = self.project.watch()
        watcher.wait_for_activity("syncing")
        self.pause(0.4)
        return watcher

    def running(self) -> Watcher:
        self.project.save("hang.txt", "")
        watcher = self.project.watch()
        watcher.wait_until("the test runs", lambda: (watcher.own_status.get("progress") or {}).get("total"))
        watcher.wait_until("the runaways run", lambda: len(self.runaways()) == 2)
        self.pause(0.1)
        return watcher

    def idle(self) -> Watcher:
        watcher = self.project.watch()
        watcher.wait_for_verdict()
        self.pause(0.1)
        return watcher


MOMENTS: tuple[Callable[[Scene], Watcher], ...] = (Scene.starting, Scene.syncing, Scene.running, Scene.idle)


@pytest.mark.timeout(180)
def test_the_next_watcher_ends_with_the_right_verdict_and_nothing_of_the_old_run_is_left(project: Project) -> None:
    scene = Scene(project)
    first = project.watch()
    box = first.wait_for_verdict("passed")["box"]["id"]
    first.kill9()
    for turn in range(ROUNDS):
        for moment in MOMENTS:
            value = scene.random.choice(("right", "wrong"))
            watcher = moment(scene)
            watcher.kill9()
            # The workspace changes while no watcher runs.
            (project.root / "hang.txt").unlink(missing_ok=True)
            project.save("value.txt", value)
            project.save(f"made while dead/{turn}.txt", moment.__name__)
            after = project.watch()
            status = after.wait_for_verdict("passed" if value == "right" else "failed")
            where = f"killed while {moment.__name__}, turn {turn}"
            assert status["box"]["id"] == box, where
            assert scene.runaways() == [], where
            # For a moment after a run, processes forked from the agent have its command line.
            wait_for(f"one agent: {where}", lambda: len(scene.agents()) == 1, limit_s=5)
            assert project.box_tree() == project.tree(), where
            after.must_be_tidy()
            after.kill9()
    if project.kind == "docker":
        assert project.container() == box


def test_a_killed_watchers_run_ends_by_itself_even_without_a_new_watcher(project: Project) -> None:
    scene = Scene(project)
    watcher = scene.running()
    watcher.kill9()
    wait_for("the run and its agent end", lambda: not scene.runaways() and not scene.agents(), limit_s=10)


def test_a_stopped_watchers_run_ends_with_it(project: Project) -> None:
    scene = Scene(project)
    watcher = scene.running()
    assert watcher.stop() == 0
    assert scene.runaways() == []
    status = watcher.status
    assert (status["activity"], status["verdict"]) == ("stopped", "unknown")
    assert status["pending"]["changes"] > 0, "what was not judged is still to be tested"


# Makes the virtualenv but does not return the first time, so that the moment of the kill is not left to chance.
SLOW_PYTHON = """#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then
    "{python}" "$@"
    test -e "{mark}" || {{ touch "{mark}"; sleep 60; }}
    exit 0
fi
exec "{python}" "$@"
"""


@pytest.mark.parametrize("kind", ["local"])
def test_a_virtualenv_that_was_half_made_is_made_whole(project: Project) -> None:
    """Killed at the worst moment of the first start: the interpreter is installed, the rest is missing."""
    project.save("test_it.py", "def test_it():\n    pass\n")
    mark, python = project.around / "made", project.around / "python"
    python.write_text(SLOW_PYTHON.format(python=sys.executable, mark=mark))
    python.chmod(0o755)
    watcher = project.watch(env={"WATCHTEST_BOX_PYTHON": str(python)})
    watcher.wait_until("a half-made virtualenv", mark.exists)
    watcher.kill9()
    after = project.watch(env={"WATCHTEST_BOX_PYTHON": str(python)})
    after.wait_for_verdict("passed")
    assert (project.local_box() / "home" / "venv" / "bin" / "pip").exists(), "no pip for setup and exec"


@pytest.mark.thorough
def test_a_first_start_may_be_killed_at_any_moment(project: Project) -> None:
    scene = Scene(project)
    for delay_s in (0.35, 0.5, 0.65, 0.8, 1.0):
        watcher = project.watch()
        time.sleep(delay_s + scene.random.random() * 0.1)  # the moment is the point of the test
        watcher.kill9()
    after = project.watch()
    after.wait_for_verdict("passed")
    wait_for("one agent", lambda: len(scene.agents()) == 1, limit_s=5)
    assert project.box_tree() == project.tree()
    after.must_be_tidy()
