"""Helpers for the projects of the end-to-end tests: the kinds of box, and the removal of watchers and boxes."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from support.watcher_process import Project, runtime_folder
from watchtest.boxes.inventory import remove_boxes

KINDS = ("local", pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.thorough]))
"""The default session uses the local box; tests that take `docker_project` cover containers in it."""

MakeProject = Callable[..., Project]


def end(project: Project) -> None:
    """Kill the project's watchers and remove its boxes and caches."""
    for watcher in project.watchers:
        if watcher.is_alive:
            watcher.kill9()
    if project.kind == "docker" and project.has_boxes:
        remove_boxes(str(project.root), project.environ)
    shutil.rmtree(project.around / "cache", ignore_errors=True)
    shutil.rmtree(runtime_folder(project.around), ignore_errors=True)
