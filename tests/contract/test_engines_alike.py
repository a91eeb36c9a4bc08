"""What holds on Docker and podman alike: limits are enforced, and everything that a box leaves can be found and
removed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from engine.images import PYTHON_313
from support.containers import container_spec, docker_provider, opened, podman_environ, recipe

from watchtest.boxes.docker.container_limits import ConfiguredLimits
from watchtest.boxes.docker.engine_check import examine, examine_container
from watchtest.boxes.docker.engines import Engine, find_engine
from watchtest.boxes.inventory import engine_resources, remove, remove_boxes
from watchtest.cli import main

ENGINES = (
    pytest.param("docker", marks=pytest.mark.docker),
    pytest.param("podman", marks=pytest.mark.podman),
)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    environ = podman_environ() if request.param == "podman" else os.environ
    engine = find_engine(environ, "docker")
    assert engine.kind == request.param
    yield engine
    engine.close()
    remove_boxes(str(tmp_path), environ)


def test_the_limits_of_a_box_are_kept_and_read_back(engine: Engine, tmp_path: Path) -> None:
    spec = replace(container_spec(tmp_path), limits=ConfiguredLimits("256m", 0.5, 200))
    provider = docker_provider(spec, {"DOCKER_HOST": engine.address.url})
    info = opened(provider, recipe(PYTHON_313))
    provider.close()

    assert (info.engine, provider.engine) == (engine.kind, engine.kind)
    assert not [remark for remark in examine(engine, ConfiguredLimits("256m", 0.5, 200)) if remark.is_warning]
    assert [remark.text for remark in examine_container(engine, info.id, ConfiguredLimits("256m", 0.5, 200))][1:] == [
        "box.memory is enforced: the box sees 256 MB",
        "box.cpus is enforced: the box sees 0.5",
        "box.pids is enforced: the box sees 200",
    ]
    [wrong] = [
        remark.text
        for remark in examine_container(engine, info.id, ConfiguredLimits("1g", 0.5, 200))
        if remark.is_warning
    ]
    assert wrong == "box.memory is 1024 MB, but the box sees 256 MB"


def test_all_that_a_box_leaves_is_labelled_and_can_be_removed(engine: Engine, tmp_path: Path) -> None:
    name = f"watchtest-test-{os.getpid()}-cache-{tmp_path.name}".lower().replace("_", "-")
    provider = docker_provider(
        replace(container_spec(tmp_path), cache_volume=name), {"DOCKER_HOST": engine.address.url}
    )
    opened(provider, recipe(PYTHON_313))
    provider.save_environment(recipe(PYTHON_313), lambda _text: None)
    provider.close()

    ours = [one for one in engine_resources(engine) if one.workspace == str(tmp_path)]
    assert [(one.what, one.lane, one.state) for one in ours] == [
        ("container", "save", "running"),
        ("image", "", "environment"),
        ("volume", "", ""),
    ]
    assert all(one.created_at > 0 for one in ours)
    for one in ours:
        remove(one, [engine])
        remove(one, [engine])  # it may already be gone
    assert [one for one in engine_resources(engine) if one.workspace == str(tmp_path)] == []


@pytest.mark.podman
def test_prune_takes_containers_of_workspaces_that_are_gone_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Only on podman: on Docker, other tests let their workspaces vanish for a while.
    environ = {"DOCKER_HOST": podman_environ()["DOCKER_HOST"]}
    there, gone = tmp_path / "there", tmp_path / "gone"
    there.mkdir()
    identities = []
    for workspace in (there, gone):
        provider = docker_provider(container_spec(workspace), environ)
        identities.append(opened(provider, recipe(PYTHON_313)).id)
        provider.close()
    monkeypatch.setenv("CONTAINER_HOST", environ["DOCKER_HOST"])
    try:
        assert main(["prune", "--engine", "podman", "--yes"]) == 0
        assert str(gone) in capsys.readouterr().out
        engine = find_engine(environ)
        left = [container["Id"] for container in engine.client.containers(all=True)]
        engine.close()
        assert [identity in left for identity in identities] == [True, False]
    finally:
        for workspace in (there, gone):
            remove_boxes(str(workspace), environ)
