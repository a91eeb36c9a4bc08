"""An engine behind ssh:// is reached with the user's own `ssh`, here a fake that needs no network."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.control_server import short_folder
from support.fake_engine import PODMAN, fake_engine, fake_ssh

from watchtest.boxes.docker.engines import find_engine
from watchtest.boxes.docker.ssh_relay import Remote
from watchtest.errors import EngineError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@pytest.fixture
def short_path() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


def ssh_processes(folder: Path) -> list[int]:
    """Return the processes of the fake `ssh` in this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(folder / "ssh") in words:
            found.append(int(entry.parent.name))
    return found


def wait_until_none(folder: Path) -> None:
    deadline = time.monotonic() + 10
    while ssh_processes(folder):
        assert time.monotonic() < deadline, "ssh processes are left"
        time.sleep(0.02)


def test_an_engine_behind_ssh_answers_and_nothing_is_left_afterwards(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fake_ssh(short_path / "bin", short_path / "far.sock")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr("tempfile.tempdir", str(short_path))
    with fake_engine(short_path / "far.sock", PODMAN, info={"ID": "far"}):
        engine = find_engine({"DOCKER_HOST": "ssh://me@far:2222"})
        assert (engine.kind, engine.address.url) == ("podman", "ssh://me@far:2222")
        assert engine.client.info() == {"ID": "far"}
        # However many requests there are: one login, and one for the persistent connection.
        for _ in range(3):
            engine.client.containers()
            engine.client.images()
        assert len(ssh_processes(folder)) == 2
        engine.close()
    wait_until_none(folder)
    assert list(short_path.glob("watchtest-ssh-*")) == []


def test_what_ssh_complains_of_is_shown(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake_ssh(short_path / "bin", short_path / "far.sock", complaint="Permission denied (publickey).")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    with pytest.raises(EngineError, match=r"does not reach .*ssh://far: Permission denied \(publickey\)") as caught:
        find_engine({"DOCKER_HOST": "ssh://far"})
    assert "`ssh -- far docker version` must work" in caught.value.hint


def test_an_ssh_that_reaches_the_machine_but_no_engine_says_so(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fake_ssh(short_path / "bin", short_path / "nobody.sock")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    with pytest.raises(EngineError, match="ssh reaches ssh://far, but no engine answers there"):
        find_engine({"DOCKER_HOST": "ssh://far"})
    wait_until_none(folder)


def test_every_ssh_ends_with_a_process_that_is_killed(short_path: Path) -> None:
    folder = fake_ssh(short_path / "bin", short_path / "far.sock")
    script = (
        "import time; from watchtest.boxes.docker.engines import find_engine\n"
        "engine = find_engine({'DOCKER_HOST': 'ssh://far'}); print('ready', flush=True); time.sleep(60)"
    )
    environ = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": str(short_path)}
    with (
        fake_engine(short_path / "far.sock"),
        subprocess.Popen([sys.executable, "-c", script], env=environ, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert len(ssh_processes(folder)) >= 2  # one for each open connection; others may be about to end
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=10)
        wait_until_none(folder)


@pytest.mark.parametrize("url", ["ssh://", "ssh://-oProxyCommand=x", "ssh://me:secret@far", "ssh://far:port"])
def test_an_address_that_ssh_must_not_get_is_refused(url: str) -> None:
    with pytest.raises(EngineError, match="address"):
        Remote.of(url)


def test_every_part_of_an_address_reaches_ssh() -> None:
    remote = Remote.of("ssh://me@Far.example:2222/run/user/1000/podman/podman.sock")
    assert remote.arguments() == ["-l", "me", "-p", "2222", "--", "Far.example"]
    assert "--host unix:///run/user/1000/podman/podman.sock" in remote.remote_command()
    assert Remote.of("ssh://[::1]:22").arguments() == ["-p", "22", "--", "::1"]
