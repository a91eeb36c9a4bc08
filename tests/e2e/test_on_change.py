"""What a change during a run does to it, with a real watcher: `on_change` smart, restart and queue.

The tests of these projects wait at a gate, a file outside the workspace, so that each change comes at the right moment.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from support.watcher_process import Project, Status, Watcher

MODULE = "VALUE = {value}\n"
FIRST = "def test_first():\n    assert {value}\n"
GATED = """import time
from pathlib import Path

import shop

def test_gate():
    Path({arrived!r}).touch()
    while not Path({gate!r}).exists():
        time.sleep(0.01)
    assert shop.VALUE == 1
"""
QUIET_S = 0.7
"""How long nothing may happen after a change that changes nothing; a run is superseded in a tenth of that."""


@pytest.fixture(params=["local"])
def kind(request: pytest.FixtureRequest) -> str:
    """The same code decides for every box; a container could not see a gate outside it."""
    return str(request.param)


@dataclass
class Scene:
    """A project with a run waiting at its gate."""

    project: Project
    watcher: Watcher

    @property
    def gate(self) -> str:
        return str(self.project.around / "gate")

    def runs(self) -> list[dict[str, Any]]:
        """Return the history, oldest first."""
        listed = json.loads(self.project.command("history", "list", "--json", "-n", "1000").stdout)["runs"]
        return list(reversed(listed))

    def states(self) -> list[str]:
        return [str(run["state"]) for run in self.runs()]

    def wait_at_the_gate(self) -> None:
        arrived = self.project.around / "arrived"
        self.watcher.wait_until("a run stands at the gate", arrived.exists)
        arrived.unlink()

    def must_still_stand(self) -> None:
        """Fail unless the same run still waits at the same gate."""
        runs = len(self.runs())
        time.sleep(QUIET_S)
        assert self.watcher.own_status["activity"] == "running"
        assert len(self.runs()) == runs

    def open_the_gate(self) -> Status:
        (self.project.around / "gate").touch()
        return self.watcher.wait_for_verdict()

    def close_the_gate(self) -> None:
        (self.project.around / "gate").unlink()
        (self.project.around / "arrived").unlink(missing_ok=True)


@pytest.fixture
def scene(project: Project, request: pytest.FixtureRequest) -> Scene:
    """A project with the given on_change, whose first run has reached the gate."""
    project.environ["WATCHTEST_RUNNER_ON_CHANGE"] = request.param
    project.save("README.md", "one\n")
    project.save("shop.py", MODULE.format(value=1))
    project.save("test_a_first.py", FIRST.format(value=True))
    gated = GATED.format(gate=str(project.around / "gate"), arrived=str(project.around / "arrived"))
    project.save("test_b_gate.py", gated)
    scene = Scene(project, project.watch())
    scene.wait_at_the_gate()
    return scene


def on_change(word: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("scene", [word], indirect=True)


@on_change("smart")
def test_smart_goes_on_while_no_unfinished_test_is_reached(scene: Scene) -> None:
    project, watcher = scene.project, scene.watcher
    project.save("README.md", "two\n")
    scene.must_still_stand()
    os.utime(project.root / "test_b_gate.py")
    os.utime(project.root / "shop.py")
    scene.must_still_stand()
    project.save("test_a_first.py", FIRST.format(value=False))
    scene.must_still_stand()
    # The first run saw none of it; what was saved meanwhile runs right after it.
    status = scene.open_the_gate()
    assert status["verdict"] == "failed"
    assert [failure["id"] for failure in status["failures"]] == ["test_a_first.py::test_first"]
    assert scene.states() == ["passed", "failed"]
    watcher.must_be_tidy()


@on_change("smart")
def test_smart_gives_a_run_up_for_a_change_that_reaches_it(scene: Scene) -> None:
    project, watcher = scene.project, scene.watcher
    project.save("shop.py", MODULE.format(value=2))
    scene.wait_at_the_gate()
    assert scene.states()[0] == "superseded"
    assert watcher.own_status["verdict"] == "unknown", "superseded is not failed"
    status = scene.open_the_gate()
    assert (status["verdict"], [failure["id"] for failure in status["failures"]]) == (
        "failed",
        ["test_b_gate.py::test_gate"],
    )
    assert scene.states() == ["superseded", "failed"]
    given_up = scene.runs()[0]
    assert "shop.py" in given_up["reason"]
    shown = project.command("history", "show", given_up["id"], "--tests").stdout
    assert "test_a_first.py::test_first" in shown, "what it had found out is kept"
    scene.close_the_gate()
    project.save("shop.py", MODULE.format(value=1))
    scene.wait_at_the_gate()
    assert scene.open_the_gate()["verdict"] == "passed"
    watcher.must_be_tidy()


@on_change("smart")
@pytest.mark.thorough
def test_smart_gives_a_run_up_for_the_file_it_is_in(scene: Scene) -> None:
    source = (scene.project.root / "test_b_gate.py").read_text(encoding="utf-8")
    scene.project.save("test_b_gate.py", source + "\n\ndef test_more():\n    pass\n")
    scene.wait_at_the_gate()
    status = scene.open_the_gate()
    assert (status["verdict"], status["known_counts"]["passed"]) == ("passed", 3)
    assert scene.states() == ["superseded", "passed"]


@on_change("smart")
def test_who_waits_for_a_run_that_is_superseded_hears_of_the_end_of_its_successor(scene: Scene) -> None:
    scene.open_the_gate()
    scene.close_the_gate()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(scene.project.command, "run", "--all", "--wait")
        scene.wait_at_the_gate()
        scene.project.save("shop.py", MODULE.format(value=2))
        scene.wait_at_the_gate()
        assert not waiting.done()
        scene.open_the_gate()
        said = waiting.result()
    assert (said.returncode, scene.states()) == (1, ["passed", "superseded", "failed"])
    assert "continues as run" in said.stderr
    assert " failed (1 passed, 1 failed)" in said.stdout


@on_change("restart")
def test_restart_gives_a_run_up_for_any_content_and_for_no_touch(scene: Scene) -> None:
    os.utime(scene.project.root / "shop.py")
    scene.must_still_stand()
    scene.project.save("README.md", "two\n")
    scene.wait_at_the_gate()
    assert scene.open_the_gate()["verdict"] == "passed"
    assert scene.states() == ["superseded", "passed"]


@on_change("queue")
def test_queue_lets_every_run_end_and_runs_the_change_behind_it(scene: Scene) -> None:
    scene.project.save("shop.py", MODULE.format(value=2))
    scene.must_still_stand()
    assert scene.watcher.own_status["pending"]["changes"] == 2, "what the first run carries, and the save"
    assert scene.open_the_gate()["verdict"] == "failed"
    assert scene.states() == ["passed", "failed"]


# -- saves that do not end, and saves in two steps -----------------------------------------------------

SLOW = "import time\n\nimport data\n\ndef test_slow():\n    time.sleep(0.3)\n    assert data.NUMBER >= 0\n"


@contextmanager
def writing(project: Project, interval_s: float) -> Iterator[None]:
    """A program that writes a file in the workspace all the time."""
    is_over = threading.Event()

    def write() -> None:
        number = 0
        while not is_over.wait(interval_s):
            number += 1
            project.save("data.new", f"NUMBER = {number}\n")
            (project.root / "data.new").replace(project.root / "data.py")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.thorough
def test_nor_can_it_where_a_run_is_over_before_the_next_write(project: Project) -> None:
    project.environ["WATCHTEST_WATCH_DEBOUNCE_MS"] = "1000"  # every verdict is held back for this long
    project.save("data.py", "NUMBER = 0\n")
    project.save("test_quick.py", "import data\n\ndef test_quick():\n    assert data.NUMBER >= 0\n")
    watcher = project.watch()
    first = watcher.wait_for_verdict("passed")
    with writing(project, 0.6):
        watcher.wait_until("another verdict", lambda: watcher.own_status["run_id"] != first["run_id"], 20)
    watcher.wait_for_verdict("passed")
    states = Scene(project, watcher).states()
    assert set(states) <= {"passed", "superseded"}, states
    assert "superseded" in states


@pytest.mark.parametrize("word", ["smart", "restart", "queue"])
@pytest.mark.thorough
def test_a_program_that_writes_all_the_time_cannot_keep_a_lane_from_its_verdict(project: Project, word: str) -> None:
    project.environ["WATCHTEST_RUNNER_ON_CHANGE"] = word
    project.save("data.py", "NUMBER = 0\n")
    project.save("test_slow.py", SLOW)
    watcher = project.watch()
    first = watcher.wait_for_verdict("passed")
    with writing(project, 0.05):
        seen = {first["run_id"]}
        for _ in range(2):
            watcher.wait_until("another verdict", lambda: watcher.own_status["run_id"] not in seen, 20)
            status = watcher.own_status
            assert (status["verdict"], status["problem"]) == ("passed", None)
            seen.add(status["run_id"])
    watcher.wait_for_verdict("passed")
    states = Scene(project, watcher).states()
    assert set(states) <= {"passed", "superseded"}, states
    assert ("superseded" in states) == (word != "queue")
    watcher.must_be_tidy()


@pytest.mark.parametrize(
    ("debounce_ms", "gap_s"),
    [
        pytest.param(50, 0.02, id="while it runs"),
        pytest.param(800, 0.4, id="after its end", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.thorough
def test_a_save_in_two_steps_has_one_verdict_of_the_second(project: Project, debounce_ms: int, gap_s: float) -> None:
    project.environ["WATCHTEST_WATCH_DEBOUNCE_MS"] = str(debounce_ms)
    project.save("shop.py", MODULE.format(value=1))
    project.save("test_shop.py", "import shop\n\ndef test_shop():\n    assert shop.VALUE > 0\n")
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    for number in range(2, 8):
        # As an editor that truncates and then writes, or is followed by a formatter.
        project.save("shop.py", "" if number % 2 else MODULE.format(value=-number))
        time.sleep(gap_s)
        project.save("shop.py", MODULE.format(value=number))
        watcher.wait_for_verdict("passed")
    states = Scene(project, watcher).states()
    assert states.count("passed") == 7, states
    assert set(states) <= {"passed", "superseded"}, states
    # A red test is shown at once, but it becomes a verdict only when the save is complete.
    assert " failed " not in watcher.output
    watcher.must_be_tidy()
