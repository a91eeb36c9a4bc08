"""Boxes of every kind, for tests that hold for all of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from box_bench import Bench
from engine.images import PYTHON_313

from watchtest.boxes.base import Place
from watchtest.boxes.docker import ContainerSpec, DockerPlace, remove_boxes
from watchtest.boxes.local import LocalPlace


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.docker)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    workspace = str(tmp_path)
    if request.param == "local":
        place: Place = LocalPlace(tmp_path / "box", os.environ)
        python = sys.executable
    else:
        name = f"watchtest-contract-{os.getpid()}-{tmp_path.name}".lower()
        place = DockerPlace(ContainerSpec(name, workspace, "save", PYTHON_313, "/workspace"), os.environ)
        python = "python3"
    bench = Bench(place, python)
    try:
        yield bench
    finally:
        bench.close()
        if request.param == "docker":
            remove_boxes(workspace, os.environ)
