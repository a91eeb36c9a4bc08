"""What the Docker tests share: the images and a client. Every test of this folder counts as marked `docker`; the gate
for that mark (skip loudly, or fail when an engine is required) is in tests/conftest.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from engine.images import BARE, PYTHON_311

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("docker")


@pytest.fixture(scope="session")
def python_image() -> str:
    """Debian's Python 3.11 with Debian's pytest."""
    return PYTHON_311


@pytest.fixture(scope="session")
def bare_image() -> str:
    """Debian without any Python."""
    return BARE


@pytest.fixture
def docker_client() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()
