"""Which engine is found, how, and what is reported if none answers. The engines are fakes on real sockets."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.fake_engine import DOCKER, PODMAN, fake_engine

from watchtest.boxes.docker import engine_addresses
from watchtest.boxes.docker.engine_addresses import Address, EngineChoice, addresses
from watchtest.boxes.docker.engines import Engine, connect, find_engine
from watchtest.errors import EngineError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def environ(tmp_path: Path, home: Path) -> dict[str, str]:
    return {"HOME": str(home), "XDG_RUNTIME_DIR": str(tmp_path / "run")}


class SystemSockets(NamedTuple):
    """The sockets that all users of a machine share."""

    docker: str
    podman: str


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SystemSockets:
    sockets = SystemSockets(str(tmp_path / "docker.sock"), str(tmp_path / "podman.sock"))
    monkeypatch.setattr(engine_addresses, "DOCKER_SOCKET", sockets.docker)
    monkeypatch.setattr(engine_addresses, "PODMAN_SOCKET", sockets.podman)
    return sockets


@pytest.fixture
def found(environ: dict[str, str], machine: SystemSockets) -> Iterator[Find]:
    find = Find(environ)
    yield find
    for engine in find.engines:
        engine.close()


class Find:
    """Finds engines and closes them at the end."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.environ = environ
        self.engines: list[Engine] = []

    def __call__(self, choice: EngineChoice = "auto", **variables: str) -> Engine:
        self.engines.append(find_engine({**self.environ, **variables}, choice))
        return self.engines[-1]


def context(home: Path, name: str, host: str) -> None:
    folder = home / ".docker" / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
    folder.mkdir(parents=True)
    endpoints = {"docker": {"Host": host, "SkipTLSVerify": False}}
    (folder / "meta.json").write_text(json.dumps({"Name": name, "Metadata": {}, "Endpoints": endpoints}))


def test_docker_host_outranks_the_context_and_the_context_outranks_the_usual_sockets(
    found: Find, home: Path, machine: SystemSockets, tmp_path: Path
) -> None:
    with (
        fake_engine(Path(machine.docker)) as usual,
        fake_engine(tmp_path / "used.sock") as used,
        fake_engine(tmp_path / "chosen.sock") as chosen,
        fake_engine(tmp_path / "named.sock") as named,
    ):
        assert found().address == Address(usual, "its usual socket", "docker")
        context(home, "used", used)
        context(home, "chosen", chosen)
        (home / ".docker" / "config.json").write_text('{"currentContext": "used"}')
        assert (found().address.url, found().address.found_by) == (used, 'the context "used" (`docker context use`)')
        told = found(DOCKER_CONTEXT="chosen").address
        assert (told.url, told.found_by) == (chosen, 'the context "chosen" (DOCKER_CONTEXT)')
        assert found(DOCKER_CONTEXT="default").address.url == usual
        assert found(DOCKER_CONTEXT="chosen", DOCKER_HOST=named).address.url == named


@pytest.mark.parametrize("choice", ["auto", "docker"])
def test_a_named_engine_that_does_not_answer_is_an_error_though_another_would(
    found: Find, home: Path, machine: SystemSockets, choice: EngineChoice
) -> None:
    context(home, "far", "unix:///nowhere/far.sock")
    with fake_engine(Path(machine.docker)), fake_engine(Path(machine.podman), PODMAN):
        with pytest.raises(EngineError, match=r"no Docker engine answers at unix:///nowhere.sock \(DOCKER_HOST\)"):
            found(choice, DOCKER_HOST="unix:///nowhere.sock")
        with pytest.raises(EngineError, match=r'at unix:///nowhere/far.sock \(the context "far"'):
            found(choice, DOCKER_CONTEXT="far")
        with pytest.raises(EngineError, match='the Docker context "gone", set in DOCKER_CONTEXT, does not exist'):
            found(choice, DOCKER_CONTEXT="gone")


def test_a_socket_without_a_listener_is_skipped_and_reported(
    found: Find, machine: SystemSockets, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(machine.docker)
    with fake_engine(tmp_path / "run" / "docker.sock") as rootless:
        engine = found()

        assert engine.address.url == rootless
        assert engine.skipped == (f"no Docker engine answers at unix://{machine.docker} (its usual socket)",)


def test_podman_is_found_after_docker_and_by_its_own_name(found: Find, machine: SystemSockets, tmp_path: Path) -> None:
    own = tmp_path / "run" / "podman" / "podman.sock"
    with fake_engine(Path(machine.podman), PODMAN) as shared:
        assert (found().kind, found().address.url) == ("podman", shared)
        with fake_engine(own, PODMAN), fake_engine(Path(machine.docker)):
            assert found().kind == "docker"
            assert found("podman").address.url == f"unix://{own}"
            assert found("podman", CONTAINER_HOST=shared).address.found_by == "CONTAINER_HOST"


def test_podman_behind_dockers_address_is_recognised(found: Find, machine: SystemSockets) -> None:
    with fake_engine(Path(machine.docker), PODMAN) as host:
        assert found("docker").kind == "podman"
        assert found("podman", DOCKER_HOST=host).kind == "podman"
        assert "podman 5.0 (API 1.41)" in str(found())


def test_docker_is_not_taken_for_podman_when_podman_was_asked_for(found: Find, machine: SystemSockets) -> None:
    with (
        fake_engine(Path(machine.docker), DOCKER) as host,
        pytest.raises(EngineError, match="no podman engine answers") as caught,
    ):
        found("podman", DOCKER_HOST=host)
    assert "podman.socket" in caught.value.hint


def test_without_any_engine_it_is_said_what_to_start(found: Find) -> None:
    with pytest.raises(EngineError, match="no Docker or podman engine answers") as caught:
        found()
    assert 'box.engine = "local"' in caught.value.hint


def test_an_engine_that_takes_connections_and_never_answers_is_given_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent.sock"))
        silent.listen()
        began = time.monotonic()
        with pytest.raises(EngineError, match="accepts connections, but does not answer"):
            connect(Address(f"unix://{tmp_path}/silent.sock", "DOCKER_HOST", "docker"), limit_s=0.2)
        assert time.monotonic() - began < 5


def test_certificates_that_are_missing_are_told_as_such(found: Find) -> None:
    with pytest.raises(EngineError, match="no secure connection to the Docker engine") as caught:
        found(DOCKER_HOST="tcp://127.0.0.1:1", DOCKER_TLS_VERIFY="1")
    assert "DOCKER_CERT_PATH" in caught.value.hint


@pytest.mark.parametrize("broken", ["{", "[]", '{"currentContext": 3'])
def test_a_docker_configuration_that_cannot_be_read_means_the_default(
    found: Find, home: Path, machine: SystemSockets, broken: str
) -> None:
    (home / ".docker").mkdir(parents=True)
    (home / ".docker" / "config.json").write_text(broken)
    with fake_engine(Path(machine.docker)) as usual:
        assert found().address.url == usual


def test_the_sockets_of_desktop_programs_are_known(environ: dict[str, str], home: Path, machine: SystemSockets) -> None:
    for name in (".docker/run/docker.sock", ".colima/default/docker.sock", ".orbstack/run/docker.sock"):
        (home / name).parent.mkdir(parents=True)
        (home / name).touch()

    tried = [address.url for address in addresses(environ, "docker")]

    assert tried == [
        f"unix://{home}/{name}"
        for name in (".docker/run/docker.sock", ".colima/default/docker.sock", ".orbstack/run/docker.sock")
    ]
