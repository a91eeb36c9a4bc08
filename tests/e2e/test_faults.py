"""A hundred random faults in a row, with saves in between: the verdicts end up right, and nothing is left over."""

from __future__ import annotations

import fcntl
import json
import os
import random
import time
from pathlib import Path

import pytest
from support.faults.container import NothingToBreak
from support.faults.faults import MOMENTS, NEED_A_WHOLE_BOX, WEIGHTS, Fault, fill_disk
from support.faults.scene import Scene, open_scene

FAULTS = int(os.environ.get("WATCHTEST_FAULTS", "15"))
"""More of them: `WATCHTEST_FAULTS=100 pytest -n0 tests/e2e/test_faults.py`."""
SEED = int(os.environ.get("WATCHTEST_FAULTS_SEED", "4"))
SECONDS_A_FAULT = 10
HEALED_BEFORE_THE_NEXT = 0.35

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120 + FAULTS * SECONDS_A_FAULT)]


def draw(count: int, chance: random.Random) -> list[Fault]:
    """Draw each fault as often as its weight says, whatever the seed; only the order is random."""
    bag = [fault for fault, weight in WEIGHTS.items() for _ in range(weight)]
    drawn = [fault for _ in range(-(-count // len(bag))) for fault in chance.sample(bag, len(bag))]
    return drawn[:count]


def strike(scene: Scene, fault: Fault, number: int) -> None:
    """Cause one fault at one moment, with or without a save during it. Often the next one comes before recovery."""
    moment = MOMENTS[0] if fault is fill_disk else scene.random.choice(MOMENTS)
    saves = scene.random.choice((0, 0, 1, 2))
    began = time.monotonic()
    print(f"{number}: {fault.__name__} {moment.__name__}, {saves} saves meanwhile", end="", flush=True)
    if fault in NEED_A_WHOLE_BOX:
        scene.must_heal()
    moment(scene)
    try:
        suffer(scene, fault, saves)
    except NothingToBreak as nothing:
        print(f", healed first ({nothing})", end="", flush=True)
        scene.must_heal()
        suffer(scene, fault, saves)
    if scene.random.random() < HEALED_BEFORE_THE_NEXT:
        scene.must_heal()
        print(", healed", end="")
    print(f", {time.monotonic() - began:.1f} s", flush=True)


def suffer(scene: Scene, fault: Fault, saves: int) -> None:
    with fault(scene):
        for _ in range(saves):
            scene.pause(0.0, 0.4)
            scene.save_something()


@pytest.mark.thorough
def test_after_many_random_faults_the_verdict_is_right_and_nothing_is_left_over(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    with open_scene(tmp_path, SEED) as scene:
        scene.must_heal()
        for number, fault in enumerate(draw(FAULTS, scene.random), 1):
            strike(scene, fault, number)
        scene.must_heal()
        must_end_clean(scene)


def must_end_clean(scene: Scene) -> None:
    assert scene.watcher.stop() == 0
    for watcher in scene.project.watchers:
        watcher.must_be_tidy()
    assert scene.watcher.status["activity"] == "stopped"
    with (scene.project.root / ".watchtest" / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if the lock is still held
    assert scene.container.trouble() == "0 agents", "one running container without other processes in it"
    history = json.loads(scene.project.command("history", "list", "-n", "10000", "--json").stdout)["runs"]
    assert len(history) > FAULTS // 3, "most faults cost a run"
    assert not [run for run in history if run["state"] in ("queued", "syncing", "running")]
