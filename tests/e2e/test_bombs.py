"""Tests that use up processes, memory or the disk: the run ends in time, and the next save gets a right verdict.

`WATCHTEST_BOMBS=default` tries them with the limits that watchtest derives from the machine, for a machine of your own.
"""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faults.container import Container
from support.projects import MakeProject, end
from support.watcher_process import Project, Watcher

LIMIT_S = 10.0
SMALL = {"WATCHTEST_BOX_PIDS": "200", "WATCHTEST_BOX_CPUS": "1", "WATCHTEST_BOX_MEMORY": "256m"}
LIMITS = {} if os.environ.get("WATCHTEST_BOMBS") == "default" else SMALL
BOMB = "test_bomb.py::test_bomb"
HARMLESS = "def test_bomb():\n    pass\n"
BOMBS = {
    "processes": """
        while True:
            try:
                os.fork()
            except OSError:
                pass
    """,
    "memory": """
        hoard = []
        while True:
            hoard.append(b"x" * 2**24)
    """,
    "memory of many processes": """
        [os.fork() for _ in range(4)]
        hoard = []
        while True:
            hoard.append(b"x" * 2**22)
    """,
    "stopped processes": """
        os.kill(-1, signal.SIGSTOP)
        time.sleep(600)
    """,
    "disk": """
        with open("/workspace/full", "wb", buffering=0) as file:
            while True:
                file.write(b"x" * 2**16)
                time.sleep(0.02)
    """,
    "disk at once": """
        open("/workspace/full", "wb").write(b"x" * 2**26)
    """,
}

pytestmark = [pytest.mark.docker, pytest.mark.thorough, pytest.mark.timeout(300)]


@pytest.fixture
def project(tmp_path: Path, make_project: MakeProject) -> Iterator[Project]:
    project = make_project(tmp_path, "docker")
    project.save("test_bomb.py", HARMLESS)
    yield project
    end(project)


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_ends_in_time_and_the_next_save_is_served(project: Project, bomb: str) -> None:
    watcher = project.watch(env={"WATCHTEST_RUNNER_TIMEOUT_S": str(LIMIT_S), **LIMITS})
    watcher.wait_for_verdict("passed", limit_s=90)
    if bomb.startswith("disk"):
        Container(project).use_small_disk()
    verdict, took_s, load = explode(project, watcher, BOMBS[bomb])
    print(f"{bomb}: {verdict} after {took_s:.1f} s, load at most {load:g}")
    assert took_s < LIMIT_S + 15
    project.save("test_bomb.py", HARMLESS)
    began = time.monotonic()
    watcher.wait_for_verdict("passed", limit_s=60)
    assert time.monotonic() - began < 15, watcher.said
    watcher.must_be_tidy()


def explode(project: Project, watcher: Watcher, bomb: str) -> tuple[str, float, float]:
    """Save the bomb; return the reason of its verdict, after how long it was there, and the highest load meanwhile."""
    began, loads = time.monotonic(), [0.0]
    body = textwrap.indent(textwrap.dedent(bomb), "    ")
    project.save("test_bomb.py", f"import os, signal, time\ndef test_bomb():\n{body}\n")
    tree = project.tree_id()

    def look() -> bool:
        loads.append(os.getloadavg()[0])
        status = watcher.own_status
        return status["activity"] == "idle" and status["code"]["tree"] == tree and not status["pending"]["changes"]

    watcher.wait_until("the verdict on the bomb", look, 90)
    took_s, status = time.monotonic() - began, watcher.own_status
    assert BOMB in [failure["id"] for failure in status["failures"]], watcher.said
    return str(status["reason"]), took_s, max(loads)
