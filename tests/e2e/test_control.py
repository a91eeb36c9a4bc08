"""Commands that talk to a running watcher, end to end: `run`, `cancel`, `pause`, `resume`."""

from __future__ import annotations

import json
import random
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from support.watcher_process import Project, Watcher

GREEN = "def test_one():\n    assert True\n\ndef test_two():\n    assert True\n"
SLOW = """import pathlib, time

def test_first():
    assert True

def test_slow():
    while pathlib.Path("slow.txt").exists():
        time.sleep(0.05)
"""
# Ignores the signals that ask a process to end.
STUBBORN = """import signal, time

def test_stubborn():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.05)
"""
SEED = 20
ROUNDS = 6


@pytest.fixture
def project(project: Project) -> Iterator[Project]:
    """A project with its own runtime folder, whose path is short enough for a socket."""
    with TemporaryDirectory(prefix="wt-") as folder:
        project.environ["WATCHTEST_RUNTIME_DIR"] = folder
        yield project
        for watcher in project.watchers:
            if watcher.is_alive:
                watcher.stop()


@pytest.fixture(params=["local"])
def kind(request: pytest.FixtureRequest) -> str:
    """The commands do not depend on the kind of box."""
    return str(request.param)


def said(done: subprocess.CompletedProcess[str], code: int = 0) -> str:
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def last_run(project: Project, name: str = "last") -> dict[str, object]:
    document = json.loads(said(project.command("history", "show", name, "--json")))
    found: dict[str, object] = document.get("run", document)
    return found


def wait_for_the_test(watcher: Watcher) -> None:
    watcher.wait_until("a test runs", lambda: (watcher.own_status.get("progress") or {}).get("total"))


def test_a_run_that_was_waited_for_leaves_with_its_verdict(project: Project) -> None:
    project.save("test_a.py", GREEN)
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    assert "passed (2 passed)" in said(project.command("run", "--wait", "--all"))
    assert "passed (1 passed)" in said(project.command("run", "--wait", "test_a.py::test_two"))
    assert said(project.command("pause")) == "save: paused\n"
    project.save("test_a.py", GREEN.replace("assert True", "assert False", 1))
    waiting = project.command("run", "--wait", "--timeout", "0.3")
    assert "within 0.3 s" in said(waiting, 124)
    assert "the save lane is paused" in waiting.stderr
    name = said(project.command("run", "--all")).split()[1]
    assert said(project.command("cancel", name)) == f"run {name} cancelled before it began\n"
    assert "save: not paused" in said(project.command("resume"))
    watcher.wait_for_verdict("failed")
    assert "failed (1 failed)" in said(project.command("run", "--wait", "--failed"), 1)
    project.save("test_a.py", "")
    watcher.wait_for_verdict("no_tests")
    assert "no tests" in said(project.command("run", "--wait", "--all"), 5)
    watcher.must_be_tidy()


@pytest.mark.thorough
def test_a_run_without_waiting_names_the_run(project: Project) -> None:
    project.save("test_a.py", GREEN)
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    name = said(project.command("run", "--all")).split()[1]
    watcher.wait_until("it has passed", lambda: last_run(project)["id"] == name and last_run(project)["ended_at"])
    assert said(project.command("cancel", name)) == f"run {name} had already ended: passed\n"
    watcher.must_be_tidy()


@pytest.mark.parametrize(("flag", "state"), [((), "cancelled"), (("--kill",), "killed")])
def test_a_sleeping_test_is_called_off_and_the_history_says_so(
    project: Project, flag: tuple[str, ...], state: str
) -> None:
    project.save("test_slow.py", SLOW)
    project.save("slow.txt", "")
    watcher = project.watch()
    wait_for_the_test(watcher)
    name, word = said(project.command("cancel", *flag)).removeprefix("run ").split()
    assert word == state
    assert "nothing is running" in said(project.command("cancel", *flag))
    assert f"had already ended: {state}" in said(project.command("cancel", name, *flag))
    watcher.wait_until("the history knows", lambda: last_run(project)["state"] == state)
    assert last_run(project, name)["state"] == state
    assert watcher.status["verdict"] == "unknown"
    (project.root / "slow.txt").unlink()
    assert watcher.wait_for_verdict("passed")["known_counts"]["passed"] == 2
    watcher.must_be_tidy()


def test_a_kill_does_not_wait_for_a_test_that_ignores_every_word(project: Project) -> None:
    project.save("test_stubborn.py", STUBBORN)
    project.environ["WATCHTEST_RUNNER_GRACE_S"] = "20"
    watcher = project.watch()
    wait_for_the_test(watcher)
    began = time.monotonic()
    assert "killed" in said(project.command("cancel", "--kill"))
    assert time.monotonic() - began < 10
    watcher.must_be_tidy()


@pytest.mark.thorough
def test_setup_is_called_off_and_begun_again_by_the_next_command(project: Project) -> None:
    project.save("test_a.py", GREEN)
    commands = project.environ["WATCHTEST_BOX_SETUP"].removeprefix("[").removesuffix("]")
    project.environ["WATCHTEST_BOX_SETUP"] = f"[{commands}, 'sleep 4']"
    watcher = project.watch()
    watcher.wait_for_words("sleep 4")
    assert "cancelled" in said(project.command("cancel"))
    assert "passed (2 passed)" in said(project.command("run", "--wait"))
    watcher.must_be_tidy()


@pytest.mark.thorough
def test_cancels_at_any_moment_leave_a_watcher_that_runs_the_next_rightly(project: Project) -> None:
    moments = random.Random(SEED)
    project.save("test_slow.py", SLOW)
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    project.save("slow.txt", "")
    watcher.wait_for_activity("running")
    said(project.command("cancel"))
    for _ in range(ROUNDS):
        name = said(project.command("run", "--all")).split()[1]
        time.sleep(moments.random() * 0.5)  # the random moment is the point of the test
        state = said(project.command("cancel", *moments.choice([(), ("--kill",)]), name)).split()[-1]
        assert state in ("cancelled", "killed")
        watcher.wait_until("it is kept", lambda name=name, state=state: last_run(project, name)["state"] == state)
    (project.root / "slow.txt").unlink()
    assert "passed (2 passed)" in said(project.command("run", "--wait", "--all"))
    watcher.wait_for_verdict("passed")
    watcher.must_be_tidy()


def test_a_program_follows_a_run_over_tcp_from_partial_results_to_its_end(project: Project) -> None:
    project.save("test_slow.py", SLOW)
    project.save("slow.txt", "")
    project.environ["WATCHTEST_API_LISTEN"] = "127.0.0.1:0"
    watcher = project.watch()
    watcher.wait_until("a test has ended", lambda: (watcher.own_status.get("progress") or {}).get("done") or None)
    url, token = said(project.command("api", "url")).strip(), said(project.command("api", "token")).strip()
    assert _asked(url, "", "/health")[0] == 401
    status, partial = _asked(url, token, "/runs/current/results")
    assert (status, partial["ended"]) == (200, False)
    assert [(each["number"], each["test"]) for each in partial["results"]] == [(1, "test_slow.py::test_first")]
    (project.root / "slow.txt").unlink()
    run = partial["run"]
    watcher.wait_until("it has ended", lambda: _asked(url, token, f"/runs/{run}")[1]["ended"])
    watcher.wait_for_verdict("passed")
    status, rest = _asked(url, token, f"/runs/{run}/results?after={partial['next']}")
    assert all(each["number"] > partial["next"] for each in rest["results"])
    _, listed = _asked(url, token, "/runs?limit=2")
    assert listed["runs"][0]["state"] == "passed"
    assert run in [each["id"] for each in _asked(url, token, "/runs")[1]["runs"]]
    shown = said(project.command("api", "show"))
    assert url in shown
    assert token not in shown
    watcher.must_be_tidy()


def _asked(url: str, token: str, path: str) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(f"{url}{path}", headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.thorough
def test_after_a_kill_of_the_watcher_the_next_one_answers_at_the_same_place(project: Project) -> None:
    project.save("test_a.py", GREEN)
    first = project.watch()
    first.wait_for_verdict("passed")
    said(project.command("run", "--wait"))
    first.kill9()
    (left,) = Path(project.environ["WATCHTEST_RUNTIME_DIR"]).iterdir()
    done = project.command("cancel")
    assert done.returncode == 4
    assert f"no watcher is running on {project.root}" in done.stderr
    second = project.watch()
    second.wait_for_verdict("passed")
    assert "passed (2 passed)" in said(project.command("run", "--wait"))
    assert left.is_socket()
    second.stop()
    assert list(left.parent.iterdir()) == []
    second.must_be_tidy()


@pytest.mark.parametrize("command", [("run",), ("run", "--wait", "test_a.py"), ("cancel",), ("pause",), ("resume",)])
def test_without_a_watcher_a_command_says_so_and_what_to_do(project: Project, command: tuple[str, ...]) -> None:
    done = project.command(*command)
    assert done.returncode == 4
    assert f"no watcher is running on {project.root}" in done.stderr
    assert "watch --once" in done.stderr


@pytest.mark.thorough
def test_a_command_right_after_the_start_waits_for_the_watcher_to_listen(project: Project) -> None:
    project.save("test_a.py", GREEN)
    watcher = project.watch()
    watcher.wait_until("it holds the lock", lambda: (project.root / ".watchtest" / "lock").exists())
    time.sleep(0.2)  # a file of that name is created just before it is locked
    assert "passed (2 passed)" in said(project.command("run", "--wait", "--all"))
    watcher.must_be_tidy()


def test_a_test_is_named_from_where_the_user_stands(project: Project) -> None:
    project.save("tests/test_deep.py", GREEN)
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    below = Project(project.root / "tests", project.around, project.kind, project.environ)
    argv = ("-C", str(project.root), "run", "--wait", "test_deep.py::test_one")
    assert "passed (1 passed)" in said(below.command(*argv))
    done = project.command("run", "--wait", "--", "../other/test_x.py")
    assert done.returncode == 2
    assert "outside the workspace" in done.stderr
    watcher.must_be_tidy()
