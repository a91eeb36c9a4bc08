"""Container specs, recipes and providers for tests, with defaults that a test overrides where it needs to."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from engine.images import PYTHON_311, TEST_IMAGE
from engine.main import podman_place

from watchtest.boxes.box import agent_zip
from watchtest.boxes.docker.container_spec import ContainerSpec
from watchtest.boxes.docker.docker_provider import DockerProvider
from watchtest.boxes.docker.engines import find_engine
from watchtest.boxes.docker.images import ImageOwner
from watchtest.boxes.protocols import BoxProvider, NamedImage, Recipe
from watchtest.core.model import BoxInfo
from watchtest.workspace.machine import machine_id

Make = Callable[..., DockerProvider]


def recipe(image: str = TEST_IMAGE or PYTHON_311, *commands: str, key: str = "key") -> Recipe:
    return Recipe(NamedImage(image), "the test says so", commands, needs_pytest=False, key=key)


def container_spec(workspace: Path, lane: str = "save") -> ContainerSpec:
    name = f"watchtest-test-{os.getpid()}-{workspace.name}".lower()
    return ContainerSpec(f"{name}-{lane}", lane, ImageOwner(str(workspace), machine_id(), f"watchtest/{name}"))


def docker_provider(spec: ContainerSpec, environ: Mapping[str, str] = os.environ) -> DockerProvider:
    return DockerProvider(spec, lambda: find_engine(environ, "docker"))


def podman_environ() -> dict[str, str]:
    """Return an environment in which the engine is the podman of the tests."""
    return {**os.environ, "DOCKER_HOST": podman_place(os.environ).host}


def opened(provider: BoxProvider, of: Recipe | None = None, notes: list[str] | None = None) -> BoxInfo:
    """Open a box, close its session and return its description."""
    box = provider.open(agent_zip(), of or recipe(), (notes if notes is not None else []).append)
    box.close()
    return box.info
