"""What a box of a project is made of, read from a snapshot: an image, and the commands that make it ready for tests.

Decides; pulls, builds and runs nothing. It is asked before every run, so contents are read and parsed only when they
have changed.

Which image a box is made of, and why: what the settings say, then a devcontainer.json, then what the project is.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from watchtest.boxes.protocols import BuiltImage, ContentReader, ImageSource, NamedImage, Recipe
from watchtest.boxes.recipe.dependency_files import dependency_files, setup_key
from watchtest.boxes.recipe.devcontainer import Devcontainer, DockerBuild, devcontainers
from watchtest.boxes.recipe.languages import Language, language_of
from watchtest.boxes.recipe.languages import python_project as python
from watchtest.boxes.recipe.project_files import ProjectFiles
from watchtest.core.model import Snapshot
from watchtest.errors import ConfigError

COPIED = re.compile(r"^[ \t]*(?:COPY|ADD)[ \t]+(?P<words>(?:\\\n|.)*)$", re.MULTILINE | re.IGNORECASE)


def configured_image(
    image: str, dockerfile: str, dependencies: Sequence[str], files: ProjectFiles
) -> ImageSource | None:
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
    return built_image(DockerBuild(path, "", (), ""), dependencies, files)


def detected_image(
    files: ProjectFiles, language: Language, dependencies: Sequence[str], host_python: tuple[int, int]
) -> tuple[ImageSource, str]:
    """What the project itself says, and where."""
    passed_over: list[str] = []
    for devcontainer in devcontainers(files):
        if why_not := _why_not(devcontainer, language):
            passed_over.append(f"{devcontainer.path} cannot be used: {why_not}")
            continue
        others = f" (its features are not installed: {', '.join(devcontainer.features)})"
        because = "; ".join([*passed_over, devcontainer.path + (others if devcontainer.features else "")])
        if isinstance(devcontainer.source, DockerBuild):
            return built_image(devcontainer.source, dependencies, files), because
        assert devcontainer.source is not None
        return NamedImage(devcontainer.source), because
    name, because = language.image(files, host_python)
    return NamedImage(name), "; ".join([*passed_over, because])


def _why_not(devcontainer: Devcontainer, language: Language) -> str:
    if language.NAME in devcontainer.features:
        return f"its {language.NAME} comes from a feature, and features are not installed"
    return devcontainer.unusable


def built_image(build: DockerBuild, dependencies: Sequence[str], files: ProjectFiles) -> BuiltImage:
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


PYTEST = "pytest"
"""In a key, for the pytest that is installed where the commands do not bring it."""


@dataclass(frozen=True, slots=True)
class RecipeInput:
    """What the settings ask for; "auto" and "" leave it to the project."""

    host_python: tuple[int, int]
    """Major and minor version of the Python that runs watchtest: what a project does not say is taken from it."""
    dependencies: tuple[str, ...]
    """Globs of the files that setup depends on; one without a slash is about the top of the tree."""
    runs_pytest: Callable[[Snapshot], bool]
    """Whether pytest is among the runners of a tree: a box for others needs neither it nor Python."""
    image: str = "auto"
    dockerfile: str = ""
    setup: tuple[str, ...] | str = "auto"


def recipe_of(wish: RecipeInput, snapshot: Snapshot, read: ContentReader) -> Recipe:
    """The recipe of a workspace: what was asked for, or what its own files say."""
    files = ProjectFiles(snapshot, read)
    dependencies = dependency_files(files, wish.dependencies)
    image = configured_image(wish.image, wish.dockerfile, dependencies, files)
    because = "box.dockerfile" if wish.image == "auto" else "box.image"
    commands, needs_pytest = wish.setup, False
    if image is None or isinstance(commands, str):
        language = language_of(files)
        if image is None:
            image, because = detected_image(files, language, dependencies, wish.host_python)
        if isinstance(commands, str):
            commands = tuple(language.commands(files))
            # Where nothing else is known to run tests, pytest is named; without a line of Python there is no use in it.
            has_python = language.NAME == python.NAME or any(path.endswith(".py") for path in snapshot.entries)
            needs_pytest = has_python and wish.runs_pytest(snapshot)
    done = (*commands, PYTEST) if needs_pytest else commands
    return Recipe(image, because, commands, needs_pytest, setup_key(done, dependencies, files))
