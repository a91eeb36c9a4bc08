"""A project's own settings reach the host only after the user has allowed it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import docker
import pytest
from support.projects import MakeProject, end
from support.terminal import Terminal
from support.watcher_process import Project

GREEN = "def test_it():\n    pass\n"
WITHOUT_ENGINE = """
import sys
from watchtest.boxes.docker import engine_addresses as known
known.DOCKER_SOCKET = known.PODMAN_SOCKET = "/nonexistent"
from watchtest.cli import main
sys.exit(main())
"""


@pytest.fixture
def cloned(tmp_path: Path, make_project: MakeProject) -> Iterator[Project]:
    """A project that the user has just cloned; every command uses the settings of the project alone."""
    project = make_project(tmp_path, "local")
    project.save("test_it.py", f"from pathlib import Path\n\ndef test_it():\n    Path({str(ran(project))!r}).touch()\n")
    yield project
    end(project)


def ran(project: Project) -> Path:
    """Return the file that a test, or a command of the project, creates if it runs on the host."""
    return project.around / "ran"


HOST = 'box.engine = "local"\nbox.sandbox = "off"\nbox.setup = ["touch {ran}"]\n'
SETTINGS = {
    "host": HOST,
    "python": 'box.engine = "local"\nbox.python = "{root}/evil"\n',
    "key": 'box.ca = "{around}/id_rsa"\n',
    "variable": 'box.environment = ["AWS_SECRET_ACCESS_KEY"]\n',
    "secret file": 'watch.include = [".env"]\n',
    "port": "box.ports = [8000]\n",
    "api": 'api.listen = "127.0.0.1:0"\n',
    "hook": 'notify.hook = "touch {ran}"\n',
}


def set_up(project: Project, what: str) -> str:
    """Write one of these settings, and return it as the user has to see it."""
    text = SETTINGS[what].format(ran=ran(project), root=project.root, around=project.around)
    (project.around / "id_rsa").write_text("SECRET")
    project.save("watchtest.toml", text)
    project.save("evil", f"#!/bin/sh\ntouch {ran(project)}\n")
    (project.root / "evil").chmod(0o755)
    return text.splitlines()[-1]


@pytest.mark.parametrize("what", SETTINGS)
def test_a_setting_that_reaches_the_host_is_refused_without_a_terminal(cloned: Project, what: str) -> None:
    setting = set_up(cloned, what)
    del cloned.environ["WATCHTEST_BOX_SETUP"], cloned.environ["WATCHTEST_BOX_SANDBOX"]
    done = cloned.command("watch", "--once", "--plain")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "watchtest.toml:" in done.stderr
    assert setting in done.stderr
    assert f"watchtest -C '{cloned.root}' trust" in done.stderr
    assert not ran(cloned).exists()
    assert not (cloned.around / "cache").exists(), "not even a box"


@pytest.mark.parametrize("words", ["start", "restart", "gate", "exec -- true", "snapshot", "reset"])
def test_every_command_that_would_make_a_box_refuses(cloned: Project, words: str) -> None:
    set_up(cloned, "host")
    del cloned.environ["WATCHTEST_BOX_SETUP"]
    subprocess.run(["git", "init", "-q"], cwd=cloned.root, check=True, timeout=30)
    done = cloned.command(*words.split())
    assert done.returncode == 2, done.stdout + done.stderr
    assert 'box.engine = "local"' in done.stderr
    assert not ran(cloned).exists()


def test_commands_that_only_look_need_no_consent_and_run_nothing(cloned: Project) -> None:
    set_up(cloned, "host")
    del cloned.environ["WATCHTEST_BOX_SETUP"], cloned.environ["WATCHTEST_BOX_SANDBOX"]
    for words in ("config show", "history list", "help security", "logs", "trust --show", "ps"):
        done = cloned.command(*words.split())
        assert "consent" not in done.stderr
        assert done.returncode == 0, (words, done.stderr)
    doctor = cloned.command("doctor", "--json")
    [*_, last] = [row for row in json.loads(doctor.stdout) if row["what"] == "trust"]
    assert last["state"] == "warning"
    assert "trust" in last["hint"]
    assert not ran(cloned).exists()


def test_what_the_user_allows_runs_until_it_changes(cloned: Project) -> None:
    cloned.save("watchtest.toml", 'box.ports = [8000]\nbox.setup = ["true"]\n')
    assert cloned.once()[0] == 2
    assert cloned.once("--trust")[0] == 0
    assert cloned.once()[0] == 2, "it was allowed for one command"
    done = cloned.command("trust", "--engine", "local")
    assert (done.returncode, "allowed: watchtest.toml:1: box.ports = [8000]" in done.stdout) == (0, True)
    assert cloned.once()[0] == 0
    cloned.save("watchtest.toml", "runner.timeout_s = 50\nbox.ports = [8000]\n")
    assert cloned.once()[0] == 0, "another setting is no reason to ask"
    cloned.save("watchtest.toml", "box.ports = [8000, 22]\n")
    assert cloned.once()[0] == 2
    assert cloned.command("trust", "--revoke").returncode == 0
    cloned.save("watchtest.toml", "box.ports = [8000]\n")
    assert cloned.once()[0] == 2


def test_settings_saved_under_a_running_watcher_wait_for_a_restart_and_the_consent(cloned: Project) -> None:
    watcher = cloned.watch()
    watcher.wait_for_verdict("passed")
    cloned.save("watchtest.toml", f'notify.hook = "touch {cloned.around}/hooked"\n')
    watcher.wait_for_words("the settings have changed")
    cloned.save("test_it.py", "def test_it():\n    assert 0\n")
    watcher.wait_for_verdict("failed")
    assert not (cloned.around / "hooked").exists()
    assert cloned.command("restart", "--engine", "local").returncode == 2
    assert watcher.is_alive, "it is left alone"


@pytest.mark.parametrize("variable", ["DOCKER_HOST", "CONTAINER_HOST"])
def test_an_engine_that_the_user_named_is_not_replaced_by_the_host(cloned: Project, variable: str) -> None:
    for words in (("watch", "--once", "--plain"), ("start",), ("exec", "--", "true")):
        done = cloned.command(*words, env={variable: "unix:///nonexistent"})
        assert done.returncode == 4, done.stdout + done.stderr
        assert f"no {'Docker' if variable == 'DOCKER_HOST' else 'podman'} engine answers" in done.stderr
    assert not ran(cloned).exists()


def test_without_engine_and_sandbox_the_host_needs_consent_once(cloned: Project) -> None:
    def watchtest(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_ENGINE, *words],
            cwd=cloned.root,
            env=cloned.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    once = ("watch", "--once", "--plain")
    code, said = watchtest(*once)
    assert code == 2, said
    assert "setup and tests run on your machine, as you" in said
    assert not ran(cloned).exists()
    assert watchtest("trust")[0] == 0
    assert watchtest(*once)[0] == 0
    assert ran(cloned).exists()
    cloned.save("test_other.py", GREEN)
    assert watchtest(*once)[0] == 0, "it is asked once"


@pytest.mark.tmux
def test_on_a_terminal_the_user_is_asked_and_no_is_the_default(cloned: Project) -> None:
    cloned.save("watchtest.toml", 'box.ports = [8000]\nbox.environment = ["TOKEN"]\n')
    command = [sys.executable, "-m", "watchtest", "watch", "--once", "--plain", "--engine", "local"]
    with Terminal(command, cloned.root, cloned.environ, width=140) as terminal:
        rows = "\n".join(terminal.shows("[y/N]"))
        for part in ("watchtest.toml:1: box.ports = [8000]", 'watchtest.toml:2: box.environment = ["TOKEN"]', "values"):
            assert part in rows
        terminal.press("Enter")
        terminal.shows("not allowed, so nothing was run", "left with code 2")
    with Terminal(command, cloned.root, cloned.environ, width=140) as terminal:
        terminal.shows("[y/N]")
        terminal.press("y", "Enter")
        terminal.shows("left with code 0")
    with Terminal(command, cloned.root, cloned.environ, width=140) as terminal:
        assert "[y/N]" not in "\n".join(terminal.shows("left with code 0"))
    cloned.save("watchtest.toml", 'box.ports = [9000]\nbox.environment = ["TOKEN"]\n')
    with Terminal(command, cloned.root, cloned.environ, width=140) as terminal:
        rows = "\n".join(terminal.shows("[y/N]"))
        assert "box.ports = [9000]" in rows
        assert "TOKEN" not in rows, "what was allowed is not asked again"
        terminal.press("C-c")
        terminal.shows("left with code 130")


@pytest.mark.docker
def test_a_hostile_devcontainer_gets_a_plain_container_and_nothing_of_the_host(docker_project: Project) -> None:
    project = docker_project
    outside = project.around / "secret"
    outside.write_text("SECRET")
    image = project.environ.pop("WATCHTEST_BOX_IMAGE")
    project.save("test_it.py", f"import os\n\ndef test_it():\n    assert not os.path.exists({str(outside)!r})\n")
    project.save("Dockerfile", f"FROM {image}\nCOPY . /context\n")
    (project.root / "leak").symlink_to(outside)
    (project.root / "folder").symlink_to(project.around)
    settings = {
        "build": {"dockerfile": "../Dockerfile", "context": ".."},
        "initializeCommand": f"touch {ran(project)}",
        "runArgs": ["--privileged", "--network=host", "-v", "/:/host"],
        "mounts": [f"source={project.around},target={project.around},type=bind"],
        "privileged": True,
        "capAdd": ["SYS_ADMIN"],
        "containerEnv": {"TOKEN": "${localEnv:TOKEN}"},
    }
    project.save(".devcontainer/devcontainer.json", json.dumps(settings))
    watcher = project.watch(env={"TOKEN": "SECRET"})
    watcher.wait_for_verdict("passed", limit_s=120)
    with closing(docker.from_env(environment=project.environ)) as client:
        found = client.api.inspect_container(project.container())
    host = found["HostConfig"]
    assert (host["Privileged"], host["CapAdd"], host["NetworkMode"] == "host") == (False, None, False)
    assert {mount["Type"] for mount in found["Mounts"]} <= {"volume"}
    assert "SECRET" not in project.in_container("sh", "-c", "env; cat /context/leak /context/folder/* 2>&1 || true")
    assert not ran(project).exists()
