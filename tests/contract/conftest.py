"""Boxes of every kind, for tests that hold for all of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from box_bench import Bench
from places import container_spec, docker_place, podman_environ

from watchtest.boxes.base import Place
from watchtest.boxes.inventory import remove_boxes
from watchtest.boxes.local.place import LocalPlace, LocalSpec

KINDS = (
    "local",
    pytest.param("bubblewrap", marks=pytest.mark.bubblewrap),
    pytest.param("docker", marks=pytest.mark.docker),
    pytest.param("podman", marks=pytest.mark.podman),
)


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    environ = podman_environ() if request.param == "podman" else os.environ
    if request.param in ("local", "bubblewrap"):
        sandbox = "on" if request.param == "bubblewrap" else "off"
        spec = LocalSpec(tmp_path / "box", str(tmp_path / "workspace"), python=sys.executable, sandbox=sandbox)
        place: Place = LocalPlace(spec, os.environ)
        python = sys.executable
    else:
        place = docker_place(container_spec(tmp_path), environ)
        python = "python3"
    bench = Bench(place, python)
    try:
        yield bench
    finally:
        bench.close()
        if request.param in ("docker", "podman"):
            remove_boxes(str(tmp_path), environ)
