"""Boxes of every kind, for tests that must hold for all of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine.images import BARE, PYTHON_313, TEST_IMAGE
from support.box_bench import Bench
from support.containers import container_spec, docker_provider, podman_environ

from watchtest.boxes.inventory import remove_boxes
from watchtest.boxes.local.local_provider import LocalProvider, LocalSpec
from watchtest.boxes.protocols import BoxProvider

WITH_PYTHON = (
    "local",
    pytest.param("bubblewrap", marks=[pytest.mark.bubblewrap, pytest.mark.thorough]),
    pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.thorough]),
    pytest.param("podman", marks=[pytest.mark.podman, pytest.mark.thorough]),
)
PLAIN = pytest.param("plain", marks=[pytest.mark.docker, pytest.mark.thorough])
"""The plain one has no Python in it. On podman it is tried by test_plain_on_podman: all of it would take minutes."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Leave boxes without Python out of the tests about the agent or pytest, which do not exist there."""
    if "kind" in metafunc.fixturenames:
        needs_python = metafunc.definition.get_closest_marker("python_in_the_box") is not None
        is_long = metafunc.definition.get_closest_marker("in_two_boxes") is not None
        kinds = [
            kind for kind in WITH_PYTHON if not is_long or kind == "local" or "docker" in getattr(kind, "values", ())
        ]
        metafunc.parametrize("kind", kinds if needs_python or is_long else (*kinds, PLAIN))


@pytest.fixture
def bench(kind: str, tmp_path: Path) -> Iterator[Bench]:
    environ = podman_environ() if kind == "podman" else os.environ
    image = BARE if kind == "plain" else TEST_IMAGE or PYTHON_313
    if kind in ("local", "bubblewrap"):
        sandbox = "on" if kind == "bubblewrap" else "off"
        spec = LocalSpec(tmp_path / "box", str(tmp_path / "workspace"), python=sys.executable, sandbox=sandbox)
        provider: BoxProvider = LocalProvider(spec, os.environ)
        python = sys.executable
    else:
        provider = docker_provider(container_spec(tmp_path), environ)
        python = "" if kind == "plain" else "python3"
    bench = Bench(provider, python, image)
    try:
        yield bench
    finally:
        bench.close()
        if kind not in ("local", "bubblewrap"):
            remove_boxes(str(tmp_path), environ)
