"""The status file's contract with editors, read as they read it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from support import TESTS
from support.watcher_process import Project, Status

from watchtest.views.schemas import status_schema

VALIDATOR = jsonschema.Draft202012Validator(status_schema(), format_checker=jsonschema.FormatChecker())
UPDATES = 1_000

# Runs the real writer in a separate process, on states made by the real `step`.
WRITER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from support.watcher_states import Story, failed, passed
from watchtest.views.status.status_writer import StatusFile, writer_of_this_process
story = Story()
tests = [f"tests/test_a.py::test_{number}" for number in range(40)]
with StatusFile(Path(sys.argv[1]), writer_of_this_process("0"), on_problem=sys.exit) as file:
    for number in range(int(sys.argv[3])):
        kind = number % 4
        if kind == 0:
            story.change(f"file {number}.py")
        elif kind == 1:
            story.sync(f"tree{number}").collect(*tests)
        elif kind == 2:
            results = [failed(t, message="m" * number) if number % 8 == 2 else passed(t) for t in tests]
            story.results(*results)
        else:
            story.end(f"tree{number - 2}", results)
        file.show(story.state, time.time() + number)
"""


def test_every_document_of_a_whole_life_keeps_the_schema(project: Project) -> None:
    project.save("test_it.py", "def test_it():\n    assert 'text' == 1, 'why'\n")
    watcher = project.watch()
    seen: dict[int, Status] = {}

    def look() -> bool:
        status = watcher.own_status
        if status:
            seen[status["seq"]] = status
        return bool(status) and status["verdict"] == "failed"

    watcher.wait_until("red", look)
    project.save("test_it.py", "def test_it(:\n")
    watcher.wait_for_verdict("error")
    seen[watcher.status["seq"]] = watcher.status
    (project.root / "test_it.py").unlink()
    watcher.wait_for_verdict("no_tests")
    seen[watcher.status["seq"]] = watcher.status
    assert watcher.stop() == 0
    seen[watcher.status["seq"]] = watcher.status
    assert len(seen) >= 5
    for status in seen.values():
        VALIDATOR.validate(status)


def test_a_watcher_that_was_killed_is_told_as_dead_and_a_stopped_one_as_stopped(project: Project) -> None:
    project.save("test_it.py", "def test_it():\n    pass\n")
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    alive = project.command("status", "--json")
    assert (alive.returncode, json.loads(alive.stdout)["alive"]) == (0, True)
    watcher.kill9()
    dead = project.command("status")
    assert dead.returncode == 4
    assert "died" in dead.stdout
    assert json.loads(project.command("status", "--json").stdout)["alive"] is False
    assert "died" in project.command("status", "--line").stdout
    again = project.watch()
    again.wait_for_verdict("passed")
    assert project.command("status").returncode == 0
    assert again.stop(signal.SIGTERM) == 0
    stopped = project.command("status")
    assert stopped.returncode == 0
    assert "stopped" in stopped.stdout
    assert "died" not in stopped.stdout


def test_red_and_pending_are_never_told_as_green(project: Project) -> None:
    project.save("test_it.py", "import time\n\ndef test_it():\n    assert 1 == 2\n")
    watcher = project.watch()
    watcher.wait_for_verdict("failed")
    assert project.command("status").returncode == 1
    locations = (project.root / ".watchtest" / "locations").read_text()
    assert locations.startswith("test_it.py:4:")
    project.save("test_it.py", "def test_it():\n    pass\n")
    watcher.wait_for_verdict("passed")
    assert project.command("status").returncode == 0
    project.save("test_it.py", "import time\n\ndef test_it():\n    time.sleep(30)\n")
    watcher.wait_for_activity("syncing", "running")
    assert project.command("status").returncode == 1, "green of the last tree, but a change is being tested"


@pytest.mark.thorough
def test_a_reader_never_sees_a_broken_document_in_a_thousand_updates(tmp_path: Path) -> None:
    folder = tmp_path / ".watchtest"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(TESTS), str(UPDATES)]) as writer:
        seen: dict[int, Status] = {}
        reads = 0
        while writer.poll() is None:
            try:
                status = json.loads((folder / "status.json").read_bytes())
            except FileNotFoundError:
                assert not seen, "the file vanished"
                continue
            reads += 1
            seen[status["seq"]] = status
        assert writer.returncode == 0
    last = json.loads((folder / "status.json").read_bytes())
    assert last["seq"] >= UPDATES
    assert reads > UPDATES
    assert len(seen) > UPDATES / 4, "the reader was too slow to prove anything"
    for status in list(seen.values())[::5]:
        VALIDATOR.validate(status)


@pytest.mark.parametrize("kind", ["local"])
def test_status_needs_neither_a_watcher_nor_an_engine(project: Project) -> None:
    done = project.command("status", env={"DOCKER_HOST": "unix:///nonexistent"})
    assert done.returncode == 2
    assert "this workspace has never been watched" in done.stderr
    assert "Traceback" not in done.stderr
