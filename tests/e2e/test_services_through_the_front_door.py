"""A small key-value server as a service, end to end: edited, crashing, adopted, and lost with its box."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import docker
import pytest
from support.ports import free_port
from support.watcher_process import Project, Watcher, wait_for

SERVER = """
import socket, sys, uuid
birth, values = uuid.uuid4().hex, {"version": "1"}
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("serving", flush=True)
while True:
    client, _ = server.accept()
    try:
        words = client.recv(100).decode().split()
        if words[:1] == ["set"]:
            values[words[1]] = words[2]
        if words[:1] == ["exit"]:
            sys.exit("told to exit")
        client.sendall((birth if words == ["birth"] else values.get(words[-1], "")).encode() if words else b"")
    except OSError:
        pass
    client.close()
"""
TESTS = """
import os, pathlib, socket
def ask(words):
    with socket.create_connection(("127.0.0.1", PORT), 5) as client:
        client.sendall(words.encode())
        return client.recv(100).decode()
def test_values_are_kept():
    ask("set colour blue")
    assert ask("get colour") == "blue"
def test_the_server_is_of_this_version():
    assert ask("get version") == VERSION
    pathlib.Path(__file__).with_name("birth").write_text(ask("birth"))
"""
SETTINGS = """
[[services]]
name = "kv"
command = "python server.py {port}"
ready = {{ tcp = {port}, timeout_s = 20 }}
restart_limit = {limit}
"""


@dataclass(frozen=True)
class Shop:
    """A project with a server, its settings, and tests that need it."""

    project: Project
    port: int

    def fill(self, version: str = "1", limit: int = 5) -> None:
        project = self.project
        project.save("server.py", SERVER.replace('"version": "1"', f'"version": "{version}"'))
        project.save("test_kv.py", TESTS.replace("PORT", str(self.port)).replace("VERSION", repr(version)))
        project.save("watchtest.toml", SETTINGS.format(port=self.port, limit=limit))

    def birth(self) -> str:
        """Return which server process answered the tests; they write it down in the box."""
        done = self.project.execute("cat", "birth")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @property
    def is_served(self) -> bool:
        return any(f"server.py {self.port}" in line for line in self.project.box_processes())


@pytest.fixture
def shop(project: Project) -> Shop:
    return Shop(project, free_port())


def services(watcher: Watcher) -> dict[str, str]:
    box = watcher.own_status.get("box") or {}
    return {service["name"]: service["state"] for service in box.get("services", ())}


def test_a_server_is_ready_for_the_tests_and_an_edit_restarts_it_before_them(shop: Shop, project: Project) -> None:
    shop.fill()
    watcher = project.watch()
    watcher.wait_for_verdict("passed", limit_s=60)
    assert services(watcher) == {"kv": "ready"}
    watcher.wait_for_words("service kv: ready")
    first = shop.birth()
    project.save("notes.md", "nothing it depends on")
    watcher.wait_for_verdict("passed")
    assert shop.birth() == first
    shop.fill(version="2")
    watcher.wait_for_verdict("passed")
    assert shop.birth() != first
    watcher.wait_for_words("service kv: restarted (server.py changed)")
    assert watcher.stop() == 0
    watcher.must_be_tidy()


def test_a_server_that_cannot_start_breaks_the_run_and_says_why_until_it_is_mended(
    shop: Shop, project: Project
) -> None:
    shop.fill(limit=1)
    good = (project.root / "server.py").read_text()
    project.save("server.py", "raise SystemExit('out of luck')")
    watcher = project.watch()
    status = watcher.wait_for_activity("degraded", limit_s=60)
    assert status["verdict"] == "unknown"
    assert status["problem"]["code"] == "service"
    assert status["problem"]["message"].splitlines() == [
        "service kv failed: exited with code 1 before it was ready (1 restart)",
        "out of luck",
    ]
    assert "watchtest logs kv" in status["problem"]["hint"]
    assert status["box"]["services"][0]["state"] == "failed"
    watcher.wait_for_words("gave up; will retry on the next change or command")
    starts = watcher.output.count("service kv: starting")
    project.save("server.py", good)
    status = watcher.wait_for_verdict("passed")
    assert status["problem"] is None
    assert watcher.output.count("service kv: starting") == starts + 1
    assert watcher.stop() == 0
    watcher.must_be_tidy()


def test_a_server_that_dies_between_runs_is_a_problem_in_the_status_file(shop: Shop, project: Project) -> None:
    shop.fill(limit=0)
    watcher = project.watch()
    watcher.wait_for_verdict("passed", limit_s=60)
    ask = f"import socket; socket.create_connection(('127.0.0.1', {shop.port}), 5).sendall(b'exit')"
    assert project.execute("python", "-c", ask).returncode == 0
    status = watcher.wait_until("a problem", lambda: watcher.own_status if watcher.own_status.get("problem") else None)
    assert status["problem"]["message"].startswith("service kv failed: exited with code 1 after it was ready for")
    assert status["activity"] == "idle"
    assert status["verdict"] == "passed"  # of this tree, as before
    project.save("test_kv.py", (project.root / "test_kv.py").read_text() + "\n")
    status = watcher.wait_for_activity("degraded")
    assert status["problem"]["code"] == "service"
    assert watcher.stop() == 0
    watcher.must_be_tidy()


def test_watch_once_ends_with_4_when_a_service_cannot_start(shop: Shop, project: Project) -> None:
    shop.fill(limit=0)
    project.save("server.py", "raise SystemExit('out of luck')")
    code, said = project.once(limit_s=60)
    assert code == 4
    assert "service: service kv failed: exited with code 1 before it was ready" in said
    assert "out of luck" in said


@pytest.mark.parametrize("kind", [pytest.param("docker", marks=pytest.mark.docker)])
@pytest.mark.thorough
def test_a_service_is_adopted_by_the_next_watcher_and_started_again_with_its_container(
    shop: Shop, project: Project
) -> None:
    shop.fill()
    watcher = project.watch()
    watcher.wait_for_verdict("passed", limit_s=60)
    first = shop.birth()
    watcher.kill9()
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    watcher.wait_for_words("service kv: still running, adopted")
    assert shop.birth() == first
    with closing(docker.from_env(environment=project.environ)) as client:
        client.containers.get(project.container()).restart(timeout=1)
    watcher.wait_for_words("service kv: started again (it was no longer running)", limit_s=60)
    watcher.wait_until("the service ready again", lambda: services(watcher) == {"kv": "ready"})
    project.save("notes.txt", json.dumps("a change"))
    watcher.wait_for_verdict("passed")
    assert shop.birth() != first
    assert watcher.stop() == 0
    watcher.must_be_tidy()


@pytest.mark.parametrize("kind", ["local"])
@pytest.mark.parametrize("end", [Watcher.stop, Watcher.kill9])
def test_services_of_a_local_box_end_with_its_watcher(
    shop: Shop, project: Project, end: Callable[[Watcher], object]
) -> None:
    shop.fill()
    watcher = project.watch()
    watcher.wait_for_verdict("passed", limit_s=60)
    assert shop.is_served
    end(watcher)
    wait_for("the end of the server", lambda: not shop.is_served, 10)


def test_the_save_that_mends_a_crashing_server_does_not_wait_for_its_last_crash(project: Project) -> None:
    shop = Shop(project, free_port())
    shop.fill(limit=8)
    mended = (project.root / "server.py").read_text()
    project.save("server.py", "raise SystemExit('not yet')\n")
    watcher = project.watch()
    watcher.wait_for_words("service kv: backoff")
    project.save("server.py", mended)
    watcher.wait_for_verdict("passed", limit_s=20)
    assert "superseded" in watcher.output
    watcher.must_be_tidy()
