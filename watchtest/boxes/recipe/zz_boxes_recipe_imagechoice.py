"""Which image a box is made of, and why: what the settings say, then a devcontainer.json, then what the project is."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import posixpath
import re
from collections.abc import Iterator, Sequence

from watchtest.boxes.protocols import BuiltImage, ImageWish, NamedImage
from watchtest.boxes.recipe.devcontainer import Build, Devcontainer, devcontainers
from watchtest.boxes.recipe.languages import Language
from watchtest.boxes.recipe.project_files import ProjectFiles
from watchtest.errors import ConfigError

COPIED = re.compile(r"^[ \t]*(?:COPY|ADD)[ \t]+(?P<words>(?:\\\n|.)*)$", re.MULTILINE | re.IGNORECASE)


def given_image(image: str, dockerfile: str, dependencies: Sequence[str], files: ProjectFiles) -> ImageWish | None:
    """What the settings name."""
    if image != "auto":
        return NamedImage(image)
    if not dockerfile:
        return None
    path = posixpath.normpath(dockerfile)
    if not files.has(path):
        raise ConfigError(
            f'box.dockerfile = "{dockerfile}": there is no such file in the workspace',
            hint="name it relative to the top of the workspace; an ignored file is not in the box",
        )
    return built_image(Build(path, "", (), ""), dependencies, files)


def found_image(
    files: ProjectFiles, language: Language, dependencies: Sequence[str], host_python: tuple[int, int]
) -> tuple[ImageWish, str]:
    """What the project itself says, and where."""
    passed_over: list[str] = []
    for devcontainer in devcontainers(files):
        if why_not := _why_not(devcontainer, language):
            passed_over.append(f"{devcontainer.path} cannot be used: {why_not}")
            continue
        others = f" (its features are not installed: {', '.join(devcontainer.features)})"
        because = "; ".join([*passed_over, devcontainer.path + (others if devcontainer.features else "")])
        if isinstance(devcontainer.source, Build):
            return built_image(devcontainer.source, dependencies, files), because
        assert devcontainer.source is not None
        return NamedImage(devcontainer.source), because
    name, because = language.image(files, host_python)
    return NamedImage(name), "; ".join([*passed_over, because])


def _why_not(devcontainer: Devcontainer, language: Language) -> str:
    if language.NAME in devcontainer.features:
        return f"its {language.NAME} comes from a feature, and features are not installed"
    return devcontainer.unusable


def built_image(build: Build, dependencies: Sequence[str], files: ProjectFiles) -> BuiltImage:
    """Built anew when a file changes that makes a difference to it: one that is copied by its name, or a dependency
    file that is copied with its folder. The code itself is mirrored anyway."""
    copied = list(_copied(files.text(build.dockerfile), build.context))
    paths = {build.dockerfile, f"{build.dockerfile}.dockerignore", posixpath.join(build.context, ".dockerignore")}
    paths |= {*copied, *(path for path in dependencies if any(_holds(source, path) for source in copied))}
    contents = [(path, files.digest(path)) for path in sorted(paths) if files.has(path)]
    basis = json.dumps([contents, build.context, build.arguments, build.target])
    key = hashlib.sha256(basis.encode()).hexdigest()[:16]
    return BuiltImage(
        build.dockerfile, build.context, key, build.arguments, build.target, snapshot=files.snapshot, read=files.read
    )


def _holds(source: str, path: str) -> bool:
    return source == "." or path.startswith(f"{source}/") or fnmatch.fnmatch(path, source)


def _copied(dockerfile: str, context: str) -> Iterator[str]:
    """What a Dockerfile copies, as paths or globs of the tree; all of the context if it may look into it otherwise."""
    if "type=bind" in dockerfile:
        yield context or "."
    for found in COPIED.finditer(dockerfile):
        words = re.findall(r"[^\s\[\],\"'\\]+", found["words"])
        for word in words[:-1]:
            yield posixpath.normpath(posixpath.join(context, word.lstrip("/")))
