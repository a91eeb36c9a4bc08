"""`start`, `stop`, `status --wait`: one watcher in the background, and a verdict on the current code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from support.watcher_process import Project, wait_for

from watchtest.views.schemas import event_schema

GREEN = "def test_one():\n    assert 1 + 1 == 2\n"
RED = GREEN.replace("== 2", "== 3")
NO_RUNS = ("--trigger", "save=off")
"""What is shown here needs no box: a start that takes a second instead of five."""


@pytest.fixture(params=["local"])
def kind(request: pytest.FixtureRequest) -> str:
    """The commands do not depend on the kind of box."""
    return str(request.param)


@pytest.fixture
def project(project: Project) -> Iterator[Project]:
    subprocess.run(["git", "init", "--quiet", str(project.root)], check=True, timeout=30)
    project.save("test_a.py", GREEN)
    yield project
    for pid in watchers(project):
        os.kill(pid, signal.SIGKILL)


def watchers(project: Project) -> list[int]:
    """Find watchers by the command lines of all processes, not by what watchtest reports."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # ended while we looked
            if b"--silent" in words and os.fsencode(project.root) in words:
                found.append(int(folder.name))
    return found


def start(project: Project, *flags: str, code: int = 0) -> int:
    """Start a watcher and return the pid that it reports."""
    done = project.command("start", "--engine", "local", *flags)
    assert done.returncode == code, done.stdout + done.stderr
    (pid,) = re.findall(r"process (\d+)", done.stdout)
    return int(pid)


def stop(project: Project) -> str:
    done = project.command("stop")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def waited(project: Project, *flags: str) -> tuple[int, dict[str, object]]:
    done = project.command("status", "--wait", "--json", *flags)
    return done.returncode, json.loads(done.stdout)


def test_a_watcher_in_the_background_answers_for_the_code_as_it_is(project: Project) -> None:
    pid = start(project)
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    assert (int(fields[3]), fields[4]) == (pid, "0"), "a session of its own, and no terminal"
    assert [str(Path(f"/proc/{pid}/fd/{number}").readlink()) for number in (0, 1)] == [os.devnull, os.devnull]
    assert str(Path(f"/proc/{pid}/cwd").readlink()) == str(project.root)
    code, status = waited(project)
    assert (code, status["verdict"]) == (0, "passed")
    for content, wanted in ((RED, (1, "failed")), (GREEN, (0, "passed")), (RED + "\n", (1, "failed"))):
        project.save("test_a.py", content)
        code, status = waited(project, "--lane", "save")  # at once: the watcher cannot have noticed it yet
        assert (code, status["verdict"]) == wanted
        assert status["code"]["tree"] == project.tree_id()  # type: ignore[index]
    assert project.command("pause").returncode == 0
    project.save("test_a.py", GREEN)
    late = project.command("status", "--wait", "--line", "--timeout", "0.5")
    assert late.returncode == 124
    assert "paused · anything may have changed" in late.stdout  # the save, and the check
    assert "paused" in late.stderr
    # `git clean -xdf` removes the lock, the log and the status of a running watcher.
    subprocess.run(["git", "clean", "-xdfq", "-e", "test_a.py"], cwd=project.root, check=True, timeout=30)
    assert project.command("resume").returncode == 0
    assert waited(project)[0] == 0
    wait_for(
        "the new log tells of the lock", lambda: "took the lock again" in project.command("logs", "--watcher").stdout
    )
    assert start(project) == pid
    assert f"process {pid}" in stop(project)
    assert watchers(project) == []
    assert json.loads((project.root / ".watchtest" / "status.json").read_bytes())["activity"] == "stopped"
    records = [json.loads(line) for line in project.command("logs", "--watcher", "--json").stdout.splitlines()]
    assert [record for record in records if record["level"] in ("error", "critical")] == []
    assert project.command("status", "--wait").returncode == 4


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.thorough)])
def test_start_and_stop_as_often_as_you_like_and_there_is_never_more_than_one(project: Project, rounds: int) -> None:
    assert "no watcher is running" in stop(project)
    for _ in range(rounds):
        pid = start(project, *NO_RUNS)
        assert watchers(project) == [pid]
        assert f"process {pid}" in stop(project)
        assert watchers(project) == []


def test_two_starts_at_once_make_one_watcher_and_kill_9_leaves_no_lock(project: Project) -> None:
    command = [sys.executable, "-m", "watchtest", "start", "--engine", "local", *NO_RUNS]
    starts = [
        subprocess.Popen(command, cwd=project.root, env=project.environ, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=60)[0] for process in starts]
    assert [process.returncode for process in starts] == [0, 0], said
    (pid,) = watchers(project)
    assert [re.findall(r"process (\d+)", text) for text in said] == [[str(pid)]] * 2
    assert sum("is already watched" in text for text in said) == 1
    assert all(", in the background" in text for text in said if "already" in text)

    os.kill(pid, signal.SIGKILL)
    wait_for("it is gone", lambda: watchers(project) == [])
    wait_for("the status says so", lambda: "not running (died" in project.command("status", "--line").stdout)
    assert project.command("status", "--line").returncode == 4
    again = start(project, *NO_RUNS)
    assert again != pid
    assert watchers(project) == [again]
    deadline = time.monotonic() + 30
    while project.command("status", "--line").returncode == 4:
        assert time.monotonic() < deadline
    assert project.command("status", "--line").returncode == 1, "nothing is known, so nothing is reported as green"
    stop(project)


def test_wrong_settings_are_told_as_in_the_foreground(project: Project) -> None:
    project.save("watchtest.toml", "[box]\nengin = 'docker'\n")
    foreground, background = project.command("watch"), project.command("start")
    assert (foreground.returncode, background.returncode) == (2, 2)
    assert foreground.stderr == background.stderr != ""
    running = project.command("restart")
    assert (running.returncode, running.stderr) == (2, background.stderr)


def test_json_lines_are_all_that_is_on_stdout(project: Project) -> None:
    project.save("test_a.py", RED + "\nprint('\\x1b[31mnot of the stream')\n")
    done = project.command("watch", "--once", "--json-lines", "--engine", "local")
    assert done.returncode == 1, done.stderr
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    validator = jsonschema.Draft202012Validator(event_schema())
    for each in objects:
        validator.validate(each)
    kinds = [each["event"] for each in objects]
    assert (kinds[0], kinds[-1]) == ("began", "leaving")
    assert [each["state"] for each in objects if each["event"] == "ended"] == ["failed"]
    assert "\x1b" not in done.stdout
