"""The container of a workspace is found again, repaired, or refused with a clear message. Uses a real engine."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from support.containers import Make, opened, recipe

from watchtest.boxes.docker.container_limits import ConfiguredLimits
from watchtest.boxes.docker.container_spec import ContainerSpec, create_container
from watchtest.boxes.docker.docker_provider import DockerProvider
from watchtest.boxes.docker.engines import find_engine
from watchtest.boxes.docker.images import BoxOrigin
from watchtest.boxes.inventory import remove_boxes
from watchtest.errors import BoxError, EngineError, ImageError


def test_a_box_is_made_once_and_adopted_ever_after(provider: Make) -> None:
    first, second = opened(provider()), opened(provider())
    assert first.id == second.id
    assert (first.notes, second.notes) == (("created",), ("adopted",))


def test_a_box_carries_its_labels_and_its_limits(provider: Make, docker_client: docker.DockerClient) -> None:
    info = opened(provider(limits=ConfiguredLimits("256m", 0.5, 100)))
    container = docker_client.containers.get(info.id)
    assert container.labels["watchtest.lane"] == "save"
    assert container.labels["watchtest.version"]
    host = container.attrs["HostConfig"]
    assert (host["Memory"], host["NanoCpus"], host["PidsLimit"]) == (256 * 1024 * 1024, 500_000_000, 100)
    assert host["Init"] is True
    assert host["Privileged"] is False
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert {"NET_RAW", "MKNOD"} <= {name.removeprefix("CAP_") for name in host["CapDrop"]}
    assert not container.attrs["Mounts"]


def test_a_box_is_limited_by_default(provider: Make, docker_client: docker.DockerClient) -> None:
    host = docker_client.containers.get(opened(provider()).id).attrs["HostConfig"]
    machine = docker_client.info()
    assert 0 < host["Memory"] < machine["MemTotal"]
    assert host["MemorySwap"] == (host["Memory"] if machine["SwapLimit"] else 2 * host["Memory"])
    assert 512 < host["PidsLimit"] <= 4096
    assert 0 < host["NanoCpus"] < machine["NCPU"] * 1e9 or machine["NCPU"] == 1


@pytest.mark.parametrize("harm", ["stop", "pause", "kill"])
def test_a_box_that_was_stopped_paused_or_killed_is_used_again(
    provider: Make, docker_client: docker.DockerClient, harm: str
) -> None:
    first = opened(provider())
    container = docker_client.containers.get(first.id)
    container.exec_run(["touch", "/var/kept"])
    getattr(container, harm)(**({"timeout": 1} if harm == "stop" else {}))
    again = opened(provider())
    assert again.id == first.id
    container.reload()
    assert container.status == "running"
    assert container.exec_run(["test", "-e", "/var/kept"]).exit_code == 0


def test_a_removed_box_is_created_again(provider: Make, docker_client: docker.DockerClient) -> None:
    first = opened(provider())
    docker_client.containers.get(first.id).remove(force=True)
    assert opened(provider()).id != first.id


def test_a_box_that_was_only_created_is_filled_and_started(
    provider: Make, spec: ContainerSpec, docker_client: docker.DockerClient, python_image: str
) -> None:
    """A watcher that is killed between the two calls leaves such a box."""
    base = docker_client.images.get(python_image)
    origin = BoxOrigin(python_image, str(base.id))
    made = create_container(docker_client.api, spec, origin, python_image, spec.name, lambda _text: None)
    info = opened(provider())
    assert info.id == made
    assert info.state == "running"


def test_changed_limits_make_another_container_with_the_same_content(
    provider: Make, spec: ContainerSpec, docker_client: docker.DockerClient
) -> None:
    first = opened(provider())
    docker_client.containers.get(first.id).exec_run(["touch", "/var/installed-by-hand"])
    second = opened(provider(limits=ConfiguredLimits("256m", pids=99)))
    assert first.id != second.id
    assert second.notes == ("recreated with its content: its limits have changed",)
    container = docker_client.containers.get(second.id)
    assert container.attrs["HostConfig"]["PidsLimit"] == 99
    assert container.exec_run(["test", "-e", "/var/installed-by-hand"]).exit_code == 0
    with pytest.raises(docker.errors.NotFound):
        docker_client.containers.get(first.id)
    assert opened(provider(limits=ConfiguredLimits("256m", pids=99))).notes == ("adopted",)
    assert container.name == spec.name, "by its usual name"


def test_another_user_or_image_makes_a_fresh_box(provider: Make, bare_image: str) -> None:
    first = opened(provider())
    second = opened(provider(user="nobody"))
    assert first.id != second.id
    assert second.notes == ("recreated: its user or its folder has changed",)
    third = opened(provider(), recipe(bare_image))
    assert third.id != second.id
    assert third.notes == (f"recreated: its image is now {bare_image}",)


def test_an_unprivileged_user_can_write_the_workspace(provider: Make, docker_client: docker.DockerClient) -> None:
    info = opened(provider(user="nobody", hardened=True))
    container = docker_client.containers.get(info.id)
    assert container.exec_run(["touch", "/workspace/x", "/opt/watchtest/x"]).exit_code == 0
    assert container.exec_run(["touch", "/etc/x"]).exit_code != 0
    assert container.attrs["HostConfig"]["CapDrop"] == ["ALL"]


def test_hardened_as_root_is_refused(provider: Make) -> None:
    with pytest.raises(BoxError, match="runs as root") as caught:
        opened(provider(hardened=True))
    assert "box.user" in caught.value.hint


def test_an_unknown_user_is_named(provider: Make) -> None:
    with pytest.raises(BoxError, match="has no user 'nemo'"):
        opened(provider(user="nemo"))


def test_no_network_means_none(provider: Make, docker_client: docker.DockerClient) -> None:
    info = opened(provider(network="off"))
    container = docker_client.containers.get(info.id)
    links = container.exec_run(["ls", "/sys/class/net"]).output.decode().split()
    assert links == ["lo"]


def test_the_certificates_of_the_host_are_in_the_box(provider: Make, docker_client: docker.DockerClient) -> None:
    """They stay those of the host: a renewed bundle is copied into the existing box."""
    for bundle in (b"-----BEGIN CERTIFICATE-----\n", b"-----BEGIN OTHER CERTIFICATE-----\n"):
        here = provider(ca_bundle=bundle)
        info = opened(here)
        container = docker_client.containers.get(info.id)
        said = container.exec_run(["sh", "-c", "cat $SSL_CERT_FILE"], environment=dict(here.variables)).output
        assert said == bundle
    assert info.notes == ("adopted",)


def test_a_command_never_costs_the_user_their_box(provider: Make, capfd: pytest.CaptureFixture[str]) -> None:
    first = opened(provider())
    other = provider(limits=ConfiguredLimits(pids=99))
    assert other.execute(["touch", "/var/mine"], {}, ()) == 0
    kept = other.inspect()
    assert kept is not None
    assert kept.id == first.id


def test_an_image_with_python_and_no_sleep_keeps_alive(
    provider: Make, spec: ContainerSpec, python_image: str, docker_client: docker.DockerClient
) -> None:
    script = "rm /bin/sleep; true"
    made = docker_client.containers.create(python_image, ["sh", "-c", script])
    try:
        made.start()
        made.wait(timeout=30)
        made.commit("watchtest-test/no-sleep", "latest")
    finally:
        made.remove(force=True)
    try:
        assert opened(provider(), recipe("watchtest-test/no-sleep:latest")).state == "running"
    finally:
        remove_boxes(spec.owner.workspace, os.environ)
        docker_client.images.remove("watchtest-test/no-sleep:latest", force=True)


def test_an_image_that_cannot_be_had_says_what_to_do(provider: Make) -> None:
    with pytest.raises(ImageError, match="cannot pull the image watchtest-test/nothing:here") as caught:
        opened(provider(), recipe("watchtest-test/nothing:here"))
    assert "docker pull" in caught.value.hint


def test_an_image_without_the_python_that_was_named_says_what_to_do_and_still_executes(
    provider: Make, bare_image: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BoxError, match=r"no Python 3\.8 or newer") as caught:
        opened(provider(python="python3"), recipe(bare_image))
    assert "box.python" in caught.value.hint
    assert provider().execute(["sh", "-c", "echo here; echo there >&2; exit 7"], {}, ()) == 7
    assert capfd.readouterr() == ("here\n", "there\n")


def test_a_name_that_is_taken_says_by_whom(
    provider: Make, spec: ContainerSpec, docker_client: docker.DockerClient, bare_image: str
) -> None:
    foreign = docker_client.containers.create(bare_image, ["sleep", "1"], name=spec.name)
    try:
        with pytest.raises(BoxError, match=f"not watchtest's, has the name {spec.name}") as caught:
            opened(provider())
        assert f"docker rm {spec.name}" in caught.value.hint
        foreign.reload()
    finally:
        foreign.remove(force=True)


def test_a_workdir_that_cannot_be_written_says_so(provider: Make) -> None:
    with pytest.raises(BoxError, match="/proc/workspace cannot be created in the box") as caught:
        opened(provider(workdir="/proc/workspace"))
    assert "box.workdir" in caught.value.hint


@pytest.fixture
def docker_py_leaks() -> Iterator[None]:
    """docker-py leaves a socket open if it cannot connect; collect it here, where the warning is expected."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("docker_py_leaks")
def test_no_engine_says_what_to_do(spec: ContainerSpec, tmp_path: Path) -> None:
    provider = DockerProvider(spec, lambda: find_engine({"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}))
    with pytest.raises(EngineError, match="no Docker engine answers") as caught:
        opened(provider)
    assert "local" in caught.value.hint


def test_a_bad_docker_host_says_so(spec: ContainerSpec) -> None:
    provider = DockerProvider(spec, lambda: find_engine({"DOCKER_HOST": "carrier-pigeon://roof"}))
    with pytest.raises(EngineError, match="carrier-pigeon://roof"):
        provider.inspect()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user without rights on the socket")
def test_no_permission_on_the_socket_says_what_to_do(tmp_path: Path) -> None:
    script = """
import os
from watchtest.boxes.docker.engines import find_engine
from watchtest.errors import EngineError
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    find_engine({"DOCKER_HOST": "unix:///var/run/docker.sock"})
except EngineError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "no permission to talk to the Docker engine" in said.stdout, said
    assert "`docker` group" in said.stdout


def test_execute_passes_stdin_variables_and_path(
    provider: Make, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    here = provider()
    opened(here)
    script = 'cat; echo "$MINE"; echo "$PATH" | cut -d: -f1; pwd'
    with (tmp_path / "input").open("w+") as stdin:
        stdin.write("from outside\n")
        stdin.seek(0)
        saved = os.dup(0)
        os.dup2(stdin.fileno(), 0)
        try:
            code = here.execute(["sh", "-c", script], {"MINE": "variable"}, ("/first",))
        finally:
            os.dup2(saved, 0)
            os.close(saved)
    assert code == 0
    assert capfd.readouterr().out == "from outside\nvariable\n/first\n/workspace\n"


def test_an_image_that_cannot_be_had_does_not_cost_the_box_there_is(provider: Make) -> None:
    first = opened(provider())
    with pytest.raises(ImageError):
        opened(provider(), recipe("watchtest-test/nothing:here"))
    assert opened(provider()).id == first.id


def test_a_watcher_killed_while_it_carried_content_over_costs_nothing(
    provider: Make, spec: ContainerSpec, docker_client: docker.DockerClient, python_image: str
) -> None:
    """Both the newer container, complete, and the older one are there."""
    first = opened(provider())
    old = docker_client.containers.get(first.id)
    old.exec_run(["touch", "/var/installed-by-hand"])
    carried = old.commit(spec.owner.repository, "carried-test")
    origin = BoxOrigin(python_image, str(docker_client.images.get(python_image).id))
    time.sleep(1.1)  # the engine reports ages in whole seconds
    made = create_container(docker_client.api, spec, origin, carried.id, f"{spec.name}-x", lambda _text: None)
    info = opened(provider())
    assert info.id == made
    assert docker_client.containers.get(made).exec_run(["test", "-e", "/var/installed-by-hand"]).exit_code == 0
    with pytest.raises(docker.errors.NotFound):
        docker_client.containers.get(first.id)


def test_a_network_that_was_for_setup_alone_is_back_when_it_is_on_again(
    provider: Make, docker_client: docker.DockerClient
) -> None:
    here = provider(network="setup")
    opened(here)
    here.allow_network(False)
    again = opened(provider(network="on"))
    links = docker_client.containers.get(again.id).exec_run(["ls", "/sys/class/net"]).output.decode().split()
    assert len(links) > 1
