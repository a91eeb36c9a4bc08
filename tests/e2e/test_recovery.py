"""Each way to lose a box: noticed within ten seconds, reported with a hint, repaired, and never green meanwhile."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.faults import faults
from support.faults.faults import Fault
from support.faults.recording import Recording, recorded
from support.faults.scene import NOTICED_WITHIN_S, Scene, is_at_peace, open_scene
from support.watcher_process import wait_for

SEED = 11

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with open_scene(tmp_path_factory.mktemp("recovery"), SEED) as scene:
        yield scene


@pytest.fixture
def scene(stage: Scene) -> Scene:
    """A watcher that is idle and green, whatever the test before did to it."""
    if not stage.watcher.is_alive:
        stage.watch()
    stage.project.save("value.txt", "right")
    stage.project.save("slow.txt", "0")
    stage.must_heal()
    return stage


def suffer(scene: Scene, fault: Fault) -> Recording:
    """Cause the fault and wait for recovery; it must be noticed in time and reported with a hint."""
    with recorded(scene.watcher) as recording:
        with fault(scene):
            pass
        scene.must_heal()
    assert recording.troubled, "no status reported it"
    first, told = recording.troubled[0]
    assert first < NOTICED_WITHIN_S
    assert told["activity"] == "degraded"
    assert all(status["problem"]["hint"] for _, status in recording.troubled)
    peaceful = [at for at, status in recording.seen if at > first and is_at_peace(status)]
    assert peaceful, "no status reported the recovery"
    assert min(peaceful) > recording.troubled[-1][0], "recovery was reported too early"
    scene.watcher.must_be_tidy()
    return recording


def problem(recording: Recording) -> dict[str, str]:
    """Return the first problem that was reported."""
    told: dict[str, str] = recording.troubled[0][1]["problem"]
    return told


def said_since(scene: Scene, mark: int) -> list[str]:
    """Return the lines of the plain output, without their times."""
    return [line[len("00:00:00 ") :] for line in scene.watcher.output[mark:].splitlines()]


def box_line(lines: list[str]) -> str:
    (line,) = (line for line in lines if line.startswith("box: "))
    return line


def runs(scene: Scene) -> list[dict[str, Any]]:
    """Return the runs in the history, newest first."""
    listed: list[dict[str, Any]] = json.loads(scene.project.command("history", "list", "-n", "1000", "--json").stdout)[
        "runs"
    ]
    return listed


# -- at rest ---------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_stopped_container_is_started_again_and_what_is_known_of_it_stays_known(scene: Scene) -> None:
    before, mark = scene.watcher.status, len(scene.watcher.output)
    told = problem(suffer(scene, faults.stop))
    assert told["code"] == "channel"
    assert told["message"] == "lost the agent in the box: the connection has ended"
    lines = said_since(scene, mark)
    assert lines[0] == "channel: lost the agent in the box: the connection has ended"
    assert lines[1] == "retrying in 0.5s"
    assert "restarted, was exited" in box_line(lines)
    after = scene.watcher.status
    assert after["box"]["id"] == before["box"]["id"]
    assert after["box"]["restarts"] == before["box"]["restarts"] + 1
    assert after["run_id"] == before["run_id"], "the same tree in the same box: nothing to run"


def test_a_removed_container_is_created_and_tested_again(scene: Scene) -> None:
    before, mark = scene.watcher.status, len(scene.watcher.output)
    told = problem(suffer(scene, faults.remove))
    assert (told["code"], told["message"]) == ("channel", "lost the agent in the box: the connection has ended")
    lines = said_since(scene, mark)
    assert box_line(lines).endswith("created")
    assert any(line.startswith("passed 1 test in") for line in lines)
    after = scene.watcher.status
    assert after["box"]["id"] != before["box"]["id"]
    assert after["run_id"] != before["run_id"], "what was judged in another box is judged again"


@pytest.mark.thorough
def test_a_paused_container_is_woken(scene: Scene) -> None:
    mark = len(scene.watcher.output)
    told = problem(suffer(scene, faults.pause))
    assert told["code"] == "channel"
    assert re.fullmatch(r"lost the agent in the box: no answer for \d s", told["message"])
    assert "restarted, was paused" in box_line(said_since(scene, mark))


@pytest.mark.thorough
def test_a_container_that_ran_out_of_memory_is_started_again(scene: Scene) -> None:
    mark = len(scene.watcher.output)
    suffer(scene, faults.run_out_of_memory)
    assert "restarted, was exited: out of memory" in box_line(said_since(scene, mark))


@pytest.mark.thorough
def test_a_dead_agent_is_replaced_in_the_box_as_it_is(scene: Scene) -> None:
    before, mark = scene.watcher.status, len(scene.watcher.output)
    suffer(scene, faults.kill_agent)
    assert box_line(said_since(scene, mark)).endswith("adopted")
    after = scene.watcher.status
    assert after["box"] == before["box"]
    assert after["run_id"] == before["run_id"]


@pytest.mark.thorough
def test_a_stalled_connection_is_noticed_and_given_up(scene: Scene) -> None:
    told = problem(suffer(scene, faults.freeze))
    assert told["code"] == "channel"
    assert re.fullmatch(r"lost the agent in the box: no answer for \d s", told["message"])


@pytest.mark.thorough
def test_a_box_that_is_lost_again_and_again_costs_no_thread_and_no_descriptor(scene: Scene) -> None:
    def held() -> tuple[int, int]:
        folder = Path("/proc") / str(scene.watcher.process.pid)
        return len(list((folder / "task").iterdir())), len(list((folder / "fd").iterdir()))

    suffer(scene, faults.kill_agent)
    threads, descriptors = held()
    for fault in (faults.kill_agent, faults.cut, faults.kill, faults.cut):
        suffer(scene, fault)
    # Pools grow gradually to their size; a leak grows with every loss.
    wait_for("no more threads than before", lambda: held()[0] <= threads + 2, limit_s=10)
    wait_for("no more descriptors than before", lambda: held()[1] <= descriptors + 2, limit_s=10)


# -- while there is work ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(faults.kill_agent, marks=pytest.mark.thorough),
        faults.kill,
        pytest.param(faults.remove, marks=pytest.mark.thorough),
    ],
)
def test_a_run_that_lost_its_box_is_given_back_and_run_again(scene: Scene, fault: Fault) -> None:
    mark, verdict_before = len(scene.watcher.output), scene.watcher.status["run_id"]
    scene.project.save("value.txt", "wrong")
    scene.project.save("slow.txt", "2")
    scene.wait_for_run()
    recording = suffer(scene, fault)
    told = recording.troubled[0][1]
    assert told["problem"]["code"] == "channel"
    assert told["pending"]["changes"] == 2, "its changes are still to be tested"
    assert told["run_id"] == verdict_before, "the verdict is the old one, and says so"
    again, interrupted = (run for run in runs(scene)[:2])
    assert (interrupted["state"], again["state"]) == ("broken", "failed")
    assert interrupted["reason"].startswith("lost the agent in the box: ")
    assert scene.watcher.status["run_id"] == again["id"]
    lines = said_since(scene, mark)
    assert "retrying" in lines
    assert any(line.startswith("failed 1 of 1 test in") for line in lines)


def test_an_engine_that_is_gone_is_asked_ever_less_often_and_found_when_it_is_back(scene: Scene) -> None:
    mark = len(scene.watcher.output)

    @contextmanager
    def gone(scene: Scene) -> Iterator[None]:
        scene.engine.stop()
        scene.watcher.wait_until("three attempts", lambda: "attempt 3 failed" in scene.watcher.output[mark:])
        yield
        scene.engine.start()

    recording = suffer(scene, gone)
    problems = [status["problem"] for _, status in recording.troubled]
    assert problems[0]["code"] == "channel"
    without = next(problem for problem in problems if problem["code"] == "engine")
    assert scene.proxy.host in without["message"] or "lost the container engine" in without["message"]
    lines = said_since(scene, mark)
    waits = [float(wait) for line in lines for wait in re.findall(r"retrying in ([\d.]+)s", line)]
    assert waits[1:4] == [0.5, 1.0, 2.0]  # the first problem is about the channel, which is noticed sooner or later
    assert "restarted, was exited" in box_line(lines)


def test_a_full_disk_is_told_and_needs_no_further_save_once_there_is_room(scene: Scene) -> None:
    scene.container.use_small_disk()
    scene.container.fill_disk()
    with recorded(scene.watcher) as recording:
        scene.project.save("value.txt", "wrong")
        told = scene.wait_until_noticed()["problem"]
        scene.container.free_disk()
        scene.must_heal()
    assert told["code"] == "disk_full"
    assert told["message"] == "value.txt cannot be written in the box: No space left on device"
    assert told["hint"].startswith("free disk space")
    first = recording.troubled[0][0]
    assert {status["verdict"] for at, status in recording.seen if at > first and is_at_peace(status)} == {"failed"}
    scene.watcher.must_be_tidy()


@pytest.mark.thorough
def test_a_run_whose_watcher_was_killed_does_not_stay_running_in_the_history(scene: Scene) -> None:
    scene.project.save("slow.txt", "2")
    scene.wait_for_run()
    killed = runs(scene)[0]
    assert killed["state"] == "running"
    scene.watcher.kill9()
    scene.project.save("slow.txt", "0")
    scene.watch()
    scene.must_heal()
    (after,) = (run for run in runs(scene) if run["id"] == killed["id"])
    assert after["state"] == "broken"
    assert after["reason"]
    assert not [run for run in runs(scene) if run["state"] in ("queued", "syncing", "running")]
