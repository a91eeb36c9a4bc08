"""Read the image from a devcontainer.json; its settings for editors, ports and mounts are ignored."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from watchtest.boxes.recipe.project_files import ProjectFiles, table

USUAL = (".devcontainer/devcontainer.json", ".devcontainer.json")
OTHERS = (".devcontainer/*/devcontainer.json",)


@dataclass(frozen=True, slots=True)
class DockerBuild:
    """A Dockerfile and its build settings; paths are relative to the root of the tree."""

    dockerfile: str
    context: str
    arguments: tuple[tuple[str, str], ...]
    target: str


@dataclass(frozen=True, slots=True)
class Devcontainer:
    """One devcontainer.json: it names an image or a build, or `unusable` says why it does not."""

    path: str
    source: str | DockerBuild | None
    unusable: str
    features: tuple[str, ...]


def devcontainers(files: ProjectFiles) -> list[Devcontainer]:
    """Return the devcontainer.json files of the tree, in the order in which editors look for them."""
    found = [path for path in USUAL if files.has(path)]
    return [_read(path, files) for path in found + files.matching(OTHERS)]


def _read(path: str, files: ProjectFiles) -> Devcontainer:
    content = files.json(path)
    source, unusable = _source(path, content, files)
    features = tuple(_name(reference) for reference in table(content, "features"))
    return Devcontainer(path, source, unusable, features)


def _source(path: str, content: Mapping[str, Any], files: ProjectFiles) -> tuple[str | DockerBuild | None, str]:
    image, build = content.get("image"), table(content, "build")
    dockerfile = build.get("dockerfile", content.get("dockerFile"))
    if "dockerComposeFile" in content:
        return None, "it uses dockerComposeFile"
    if isinstance(dockerfile, str):
        return _build(path, dockerfile, build, content, files)
    if not isinstance(image, str) or not image:
        return None, "it names neither an image nor a Dockerfile"
    if "${" in image:
        return None, f"its image {image} contains a variable"
    return image, ""


def _build(
    path: str, dockerfile: str, build: Mapping[str, Any], content: Mapping[str, Any], files: ProjectFiles
) -> tuple[DockerBuild | None, str]:
    folder = posixpath.dirname(path)
    context = build.get("context", content.get("context", "."))
    arguments = {str(name): str(value) for name, value in table(build, "args").items()}
    target = build.get("target", "")
    values = [dockerfile, context, target, *arguments.values()]
    if not all(isinstance(value, str) for value in values) or any("${" in value for value in values):
        return None, "its build settings contain a variable"
    where, root = (posixpath.normpath(posixpath.join(folder, one)) for one in (dockerfile, context))
    if any(one == ".." or one.startswith(("../", "/")) for one in (where, root)):
        return None, "its Dockerfile or context is outside the workspace"
    if not files.has(where):
        return None, f"its Dockerfile {where} does not exist"
    return DockerBuild(where, "" if root == "." else root, tuple(sorted(arguments.items())), target), ""


def _name(reference: str) -> str:
    """Return the name of a feature: `python` for `ghcr.io/devcontainers/features/python:1`."""
    return reference.rstrip("/").rpartition("/")[2].partition(":")[0].partition("@")[0]
