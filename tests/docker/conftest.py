"""Fixtures of the Docker tests: the images and a client. Every test in this folder counts as marked `docker`;
tests/conftest.py skips or fails those tests when there is no engine."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from engine.images import BARE, PYTHON_311, TEST_IMAGE
from support.containers import Make, container_spec, docker_provider

from watchtest.boxes.docker.container_spec import ContainerSpec
from watchtest.boxes.docker.docker_provider import DockerProvider
from watchtest.boxes.inventory import remove_boxes

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("docker")


@pytest.fixture(scope="session")
def python_image() -> str:
    """Debian's Python 3.11 with Debian's pytest."""
    return TEST_IMAGE or PYTHON_311


@pytest.fixture(scope="session")
def bare_image() -> str:
    """Debian without any Python."""
    return BARE


@pytest.fixture
def docker_client() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def spec(tmp_path: Path) -> ContainerSpec:
    return container_spec(tmp_path)


@pytest.fixture
def provider(spec: ContainerSpec) -> Iterator[Make]:
    """Return a function that makes box providers for one workspace; what they create is removed afterwards."""
    made: list[DockerProvider] = []

    def make(**changes: object) -> DockerProvider:
        made.append(docker_provider(dataclasses.replace(spec, **changes)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for provider in made:
        provider.close()
    remove_boxes(spec.owner.workspace, os.environ)
