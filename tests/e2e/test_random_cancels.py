"""Runs are cancelled or killed at random moments: during setup, collection and tests.

Every end is in the history, no run stays open, and the next save is run at once with the right verdict.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest
from support.watcher_process import Project, Watcher

PARTS = ("setup", "collection", "tests")
PART_S = 0.2
"""Setup and collection take so long, the tests three times that: the status file tells of them a little later."""
SETUP = f"cat deps.txt && sleep {PART_S}"
TESTS = f"""import time
time.sleep({PART_S})

def test_first():
    time.sleep({2 * PART_S})

def test_value():
    time.sleep({PART_S})
    assert open("value.txt").read() == open("wanted.txt").read()
"""
AT_ONCE_S = 2.0
LET_THROUGH = 10
"""One run in this many is not cancelled and must give the right verdict."""


@dataclass
class Play:
    """One watcher; every round saves something new and cancels the run."""

    project: Project
    watcher: Watcher
    moments: random.Random
    states: Counter[str] = field(default_factory=Counter)
    parts: Counter[str] = field(default_factory=Counter)
    ended: dict[str, str] = field(default_factory=dict)
    rounds: int = 0

    def save(self, *, is_green: bool) -> None:
        """Change everything that a run depends on, including setup."""
        self.rounds += 1
        self.project.save("wanted.txt", f"{self.rounds}")
        self.project.save("value.txt", f"{self.rounds if is_green else 'wrong'}")
        self.project.save("deps.txt", f"{self.rounds}")

    def save_and_cancel(self) -> None:
        """Save, wait until the run reaches a phase, and cancel it a random moment later."""
        before = self.watcher.own_status["run_id"]
        wanted = self.moments.choice(PARTS)
        self.save(is_green=True)
        self.watcher.wait_until("the save is run", lambda: self.part() != "nothing", AT_ONCE_S)
        self.watcher.wait_until("the part is reached", lambda: self.part() in (wanted, "nothing"))
        time.sleep(self.moments.random() * PART_S)  # the random moment is the point of the test
        part = self.part()
        flag = self.moments.choice([(), ("--kill",)])
        done = self.project.command("cancel", *flag)
        assert done.returncode == 0, done.stdout + done.stderr
        words = done.stdout.split()
        state = "killed" if flag else "cancelled"
        if words[0] == "run" and words[-1] == state:
            self.states[state] += 1
            self.parts[part] += 1
            self.ended[words[1]] = state
            assert self.watcher.own_status["run_id"] == before, "a cancelled run has no verdict"
        else:
            assert "nothing is running" in done.stdout or "passed" in done.stdout or "ended before" in done.stdout

    def part(self) -> str:
        """Return the current phase of the run, from the status file."""
        status = self.watcher.own_status
        if status["activity"] == "syncing":
            return "setup"
        if status["activity"] != "running":
            return "nothing"
        return "tests" if (status["progress"] or {}).get("total") else "collection"

    def let_through(self) -> None:
        is_green = self.moments.random() < 0.5
        self.save(is_green=is_green)
        status = self.watcher.wait_for_verdict("passed" if is_green else "failed")
        counts = status["known_counts"]
        assert (counts["passed"], counts["failed"]) == ((2, 0) if is_green else (1, 1))


SEEDS = int(os.environ.get("WATCHTEST_CANCEL_SEEDS", "1"))
"""A hundred and more: `WATCHTEST_CANCEL_SEEDS=3 pytest tests/e2e/test_random_cancels.py`."""


@pytest.mark.parametrize(
    ("kind", "seed", "count"),
    [
        *[("local", seed, 20) for seed in range(SEEDS)],
        *[pytest.param("docker", seed, 20, marks=pytest.mark.docker) for seed in range(SEEDS)],
    ],
)
@pytest.mark.thorough
def test_runs_called_off_at_any_moment_are_kept_as_such_and_the_next_is_right(
    project: Project, seed: int, count: int
) -> None:
    given = project.environ.get("WATCHTEST_BOX_SETUP", "[]").removeprefix("[").removesuffix("]")
    project.environ |= {
        "WATCHTEST_BOX_SETUP": f"[{given}{', ' if given else ''}'{SETUP}']",
        "WATCHTEST_BOX_DEPENDENCIES": '["deps.txt"]',
        "WATCHTEST_RUNNER_GRACE_S": "1",
    }
    project.save("test_slow.py", TESTS)
    watcher = project.watch()
    play = Play(project, watcher, random.Random(seed))
    play.save(is_green=True)
    watcher.wait_for_verdict("passed")
    while len(play.ended) < count:
        assert play.rounds < 3 * count, play.states
        play.save_and_cancel()
        if play.rounds % LET_THROUGH == 0:
            play.let_through()
    play.let_through()
    kept = json.loads(project.command("history", "list", "--json", "-n", "1000").stdout)["runs"]
    assert {run["id"]: run["state"] for run in kept if run["id"] in play.ended} == play.ended
    assert all(run["ended_at"] for run in kept), "a run was left open"
    assert {run["state"] for run in kept} <= {"cancelled", "killed", "passed", "failed", "superseded"}
    assert min(play.states[word] for word in ("cancelled", "killed")) >= count / 5, play.states
    assert min(play.parts[word] for word in PARTS) >= 2, play.parts
    watcher.must_be_tidy()
