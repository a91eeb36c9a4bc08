"""What is kept of a box (the environment after setup, a snapshot, caches), and what a recreated box starts from."""

from __future__ import annotations

from collections.abc import Callable

import docker
import pytest
from support.containers import Make, opened, recipe
from support.ports import free_port

from watchtest.boxes.docker.container_limits import ConfiguredLimits
from watchtest.boxes.docker.container_spec import ContainerSpec
from watchtest.boxes.protocols import BuiltImage, Recipe
from watchtest.core.model import Entry, EntryKind, Snapshot
from watchtest.errors import BoxGone, ImageError
from watchtest.sources.tree_id import blob_id

Do = Callable[..., str]


@pytest.fixture
def do(docker_client: docker.DockerClient) -> Do:
    """Run a shell command in a container and return its output."""

    def run(container: str, script: str) -> str:
        code, output = docker_client.containers.get(container).exec_run(["sh", "-c", script])
        assert code == 0, output
        return str(output.decode())

    return run


def remove(docker_client: docker.DockerClient, container: str) -> None:
    docker_client.containers.get(container).remove(force=True)


def test_a_recreated_box_starts_from_the_environment_that_was_kept(
    provider: Make, docker_client: docker.DockerClient, do: Do
) -> None:
    here, notes = provider(), []
    first = opened(here)
    do(first.id, "echo installed > /opt/package")
    here.save_environment(recipe(), notes.append)
    assert notes == ["saving the box for the next one"]
    remove(docker_client, first.id)
    second = opened(here, notes=notes)
    assert "creating the box from the saved environment" in notes
    assert do(second.id, "cat /opt/package") == "installed\n"


@pytest.mark.thorough
def test_another_setup_or_another_user_does_not_start_from_it(
    provider: Make, docker_client: docker.DockerClient, do: Do
) -> None:
    here = provider()
    first = opened(here)
    do(first.id, "echo installed > /opt/package")
    here.save_environment(recipe(key="one"), lambda _text: None)
    remove(docker_client, first.id)
    other = opened(here, recipe(key="two"))
    assert do(other.id, "ls /opt") == "watchtest\n"
    nobody = opened(provider(user="nobody"), recipe(key="one"))
    assert do(nobody.id, "ls /opt") == "watchtest\n"


def test_an_environment_is_kept_once_and_is_that_of_every_lane(
    provider: Make, spec: ContainerSpec, docker_client: docker.DockerClient, do: Do
) -> None:
    here, notes = provider(), []
    do(opened(here).id, "touch /opt/package")
    here.save_environment(recipe(), notes.append)
    here.save_environment(recipe(), notes.append)
    assert len(notes) == 1
    beside = opened(provider(lane="commit", name=f"{spec.name}-commit"))
    assert "package" in do(beside.id, "ls /opt")


def test_only_the_last_few_environments_are_kept(
    provider: Make, spec: ContainerSpec, docker_client: docker.DockerClient
) -> None:
    here = provider()
    opened(here)
    for number in range(5):
        here.save_environment(recipe(key=f"setup {number}"), lambda _text: None)
    label = [f"watchtest.workspace={spec.owner.workspace}", "watchtest.role=environment"]
    kept = docker_client.api.images(filters={"label": label})
    # The engine reports times in whole seconds, so do not check which of the newest remain.
    assert len(kept) == 3


def test_a_snapshot_is_what_all_boxes_of_the_workspace_grow_from(
    provider: Make, spec: ContainerSpec, docker_client: docker.DockerClient, do: Do
) -> None:
    here, notes = provider(), []
    beside = provider(lane="commit", name=f"{spec.name}-commit")
    first, other = opened(here), opened(beside)
    do(first.id, "echo by-hand > /opt/package")
    here.snapshot(recipe(), notes.append)
    assert opened(here).id == first.id, "the box it was taken from keeps running"
    renewed = opened(beside, notes=notes)
    assert renewed.id != other.id
    assert renewed.notes == ("recreated: a snapshot was taken of another box",)
    assert do(renewed.id, "cat /opt/package") == "by-hand\n"
    remove(docker_client, first.id)
    assert do(opened(here).id, "cat /opt/package") == "by-hand\n"


@pytest.mark.thorough
def test_a_second_snapshot_takes_the_place_of_the_first(
    provider: Make, spec: ContainerSpec, docker_client: docker.DockerClient, do: Do
) -> None:
    here = provider()
    first = opened(here)
    for word in ("one", "two"):
        do(first.id, f"echo {word} > /opt/package")
        here.snapshot(recipe(), lambda _text: None)
    remove(docker_client, first.id)
    assert do(opened(here).id, "cat /opt/package") == "two\n"


def test_a_snapshot_without_a_box_says_so(provider: Make) -> None:
    with pytest.raises(BoxGone, match="there is no box"):
        provider().snapshot(recipe(), lambda _text: None)


def test_reset_throws_boxes_away_and_with_the_word_also_what_was_kept(
    provider: Make, spec: ContainerSpec, docker_client: docker.DockerClient, do: Do
) -> None:
    here = provider(cache_volume=f"{spec.name}-cache")
    do(opened(here).id, "touch /opt/package /opt/watchtest/cache/wheel")
    here.save_environment(recipe(), lambda _text: None)
    assert here.reset(with_environment=False) == ("1 container",)
    kept = opened(here)
    assert "package" in do(kept.id, "ls /opt")
    assert do(kept.id, "ls /opt/watchtest/cache") == "wheel\n"
    here.reset(with_environment=True)
    label = [f"watchtest.workspace={spec.owner.workspace}"]
    assert docker_client.api.images(filters={"label": label}) == []
    fresh = opened(here)
    assert do(fresh.id, "ls /opt; ls /opt/watchtest/cache") == "watchtest\n"


def test_caches_are_in_a_labelled_volume_that_the_user_of_the_box_can_write(
    provider: Make, spec: ContainerSpec, docker_client: docker.DockerClient, do: Do
) -> None:
    volume = f"{spec.name}-cache"
    here = provider(cache_volume=volume, user="nobody", hardened=True)
    info = opened(here)
    do(info.id, 'mkdir -p "$0" && touch "$0/x"'.replace("$0", here.variables["PIP_CACHE_DIR"]))
    assert docker_client.volumes.get(volume).attrs["Labels"]["watchtest.workspace"] == spec.owner.workspace


def test_the_network_is_there_while_setup_runs_and_at_no_other_time(provider: Make, do: Do) -> None:
    here = provider(network="setup")
    info = opened(here)
    links = []
    for is_allowed in (True, False, False, True, False):
        here.allow_network(is_allowed)
        links.append(len(do(info.id, "ls /sys/class/net").split()) > 1)
    assert links == [True, False, False, True, False]


def test_ports_of_the_box_are_given_to_this_machine_alone(provider: Make, docker_client: docker.DockerClient) -> None:
    port = free_port()
    info = opened(provider(ports=(port,)))
    bound = docker_client.containers.get(info.id).attrs["NetworkSettings"]["Ports"]
    assert bound == {f"{port}/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(port)}]}


# -- images that are built -------------------------------------------------------------------------


def built(
    files: dict[str, str], *, key: str = "0" * 16, target: str = "", context: str = "", **arguments: str
) -> Recipe:
    content = {path: text.encode() for path, text in files.items()}
    entries = {path: Entry(EntryKind.FILE, 0o644, len(data), blob_id(data)) for path, data in content.items()}
    image = BuiltImage(
        "docker/Dockerfile",
        context,
        key,
        tuple(arguments.items()),
        target,
        Snapshot("tree", entries),
        lambda path, _entry: content[path],
    )
    return Recipe(image, "box.dockerfile", (), needs_pytest=False, key="key")


def test_an_image_is_built_from_the_snapshot_with_visible_progress(
    provider: Make, docker_client: docker.DockerClient, do: Do, python_image: str
) -> None:
    wanted = built(
        {
            "docker/Dockerfile": f"FROM {python_image}\nARG WORD\nCOPY . /opt/context\nRUN echo $WORD > /opt/word\n",
            "requirements.txt": "six\n",
            "secret/token": "hush",
            ".dockerignore": "secret\n",
        },
        WORD="spoken",
    )
    notes: list[str] = []
    info = opened(provider(), wanted, notes)
    assert do(info.id, "cat /opt/word; cd /opt/context; find . -type f | sort") == (
        "spoken\n./.dockerignore\n./docker/Dockerfile\n./requirements.txt\n"
    )
    assert any("building docker/Dockerfile" in note and "COPY" in note and "━" in note for note in notes), notes
    notes.clear()
    assert opened(provider(), wanted, notes).notes == ("adopted",)
    assert notes == []


def test_a_changed_dockerfile_makes_another_box(provider: Make, do: Do, python_image: str) -> None:
    first = opened(provider(), built({"docker/Dockerfile": f"FROM {python_image}\n"}))
    changed = {"docker/Dockerfile": f"FROM {python_image}\nRUN touch /opt/new\n"}
    second = opened(provider(), built(changed, key="1" * 16))
    assert second.id != first.id
    assert "new" in do(second.id, "ls /opt")


def test_a_dockerfile_that_does_not_build_shows_what_it_said(provider: Make, python_image: str) -> None:
    wanted = built({"docker/Dockerfile": f"FROM {python_image}\nRUN echo no such thing; exit 3\n"}, key="2" * 16)
    with pytest.raises(ImageError, match=r"docker/Dockerfile does not build: .*returned a non-zero code: 3") as caught:
        opened(provider(), wanted)
    assert "no such thing" in caught.value.message
    assert "fix it and save" in caught.value.hint


def test_nothing_that_is_kept_is_left_unlabelled(
    provider: Make, spec: ContainerSpec, docker_client: docker.DockerClient, python_image: str
) -> None:
    before = {image.id for image in docker_client.images.list(all=False)}
    here = provider(cache_volume=f"{spec.name}-cache")
    opened(here)
    here.save_environment(recipe(), lambda _text: None)
    here.snapshot(recipe(), lambda _text: None)
    opened(provider(cache_volume=f"{spec.name}-cache", limits=ConfiguredLimits(pids=77)))
    made = [image for image in docker_client.images.list(all=False) if image.id not in before]
    ours = [image for image in made if any(tag.startswith(spec.owner.repository) for tag in image.tags)]
    assert len(ours) >= 3
    for image in ours:
        assert image.labels["watchtest.workspace"] == spec.owner.workspace
        assert image.labels["watchtest.role"] in ("environment", "snapshot", "carried")
        assert image.labels["watchtest.host"] == spec.owner.host
