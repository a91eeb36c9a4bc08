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


GREEN = "def test_it():\n    pass\n"
RED = "def test_it():\n    assert 1 == 2\n"
FORMS = ((), ("--line",), ("--json",))


def shown(project: Project) -> list[tuple[int, bool]]:
    """Return the exit code of each form of `status`, and whether it looks green."""
    done = [project.command("status", *form) for form in FORMS]
    return [(each.returncode, "✔" in each.stdout or '"green"' in each.stdout) for each in done]


def test_without_a_watcher_green_is_about_the_code_as_it_is(project: Project, tmp_path: Path) -> None:
    project.save("test_it.py", GREEN)
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    assert shown(project) == [(0, True)] * 3
    assert watcher.stop() == 0
    assert shown(project) == [(0, True), (1, False), (0, True)], "a prompt compares nothing"
    project.save("test_it.py", RED)
    assert shown(project) == [(1, False)] * 3
    changed = project.command("status").stdout
    assert changed.startswith("? the code has changed since (1 file: test_it.py) · last: passed 1 test · ")
    project.save("test_it.py", GREEN)
    assert shown(project)[0] == (0, True)
    (project.root / "data").mkdir()
    assert shown(project)[0] == (1, False), "git knows no empty folders, but tests do"
    (project.root / "data").rmdir()
    by_hand = project.root / ".watchtest" / "by-hand"
    by_hand.write_text("pip uninstall requests\n")
    assert shown(project)[0] == (1, False), "nothing was tested in the box as it is now"
    by_hand.unlink()
    status = project.root / ".watchtest" / "status.json"
    forged = json.loads(status.read_text())
    forged["known_counts"]["passed"] = forged["lanes"]["save"]["known_counts"]["passed"] = 99
    status.write_text(json.dumps(forged))
    assert shown(project) == [(1, False)] * 3, "this is not what the watcher has left"


def test_a_status_that_came_with_the_repository_is_never_green(project: Project) -> None:
    project.save("test_it.py", GREEN)
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    live = watcher.status
    assert watcher.stop() == 0
    stopped = json.loads((project.root / ".watchtest" / "status.json").read_text())
    for document in (live, {**stopped, "colour": "green", "doubt": None}):
        place = project.root.parent / f"clone {document['activity']}"
        clone = Project(place, project.around, project.kind, project.environ, has_boxes=False)
        (clone.root / ".watchtest").mkdir(parents=True)
        clone.save("test_it.py", GREEN)
        (clone.root / ".watchtest" / "status.json").write_text(json.dumps(document))
        (clone.root / ".watchtest" / "heartbeat").touch()
        assert not any(is_green or code == 0 for code, is_green in shown(clone)), document["activity"]


def test_a_failure_that_is_being_confirmed_is_amber_in_every_form(project: Project) -> None:
    project.save("slow.py", "import time\n")
    project.save("test_it.py", "import slow\n\ndef test_it():\n    pass\n")
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    watcher.wait_until("a warm run", lambda: project.command("run", "--wait").returncode == 0)
    project.save("slow.py", "import time\ntime.sleep(3)\n")
    project.save("test_it.py", "import slow\n\ndef test_it():\n    raise ValueError('not sure')\n")
    watcher.wait_until("confirming", lambda: str(watcher.status.get("doubt")).startswith("confirming 1"))
    assert watcher.status["colour"] == "amber"
    assert [(each["id"], each["confirmed"]) for each in watcher.status["failures"]] == [("test_it.py::test_it", False)]
    assert shown(project) == [(1, False)] * 3
    watcher.wait_for_verdict("failed")
    assert watcher.status["colour"] == "red"
    assert watcher.status["failures"][0]["confirmed"] is True
    assert "confirming 1 failure in a fresh process" in watcher.said
