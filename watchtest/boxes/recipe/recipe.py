"""Decide how to make the box of a project: which image, and which commands prepare it for tests.

The image comes from the settings, else from a devcontainer.json, else from the language of the project. This runs
before every run, so files are read and parsed only when they have changed. It pulls, builds and runs nothing.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from watchtest.boxes.protocols import BuiltImage, ContentReader, ImageSource, NamedImage, Recipe
from watchtest.boxes.recipe import git_need
from watchtest.boxes.recipe.dependency_files import setup_inputs, setup_key
from watchtest.boxes.recipe.devcontainer import DockerBuild, devcontainers
from watchtest.boxes.recipe.languages import Language, language_of
from watchtest.boxes.recipe.languages.python import python_project as python
from watchtest.boxes.recipe.project_files import ProjectFiles
from watchtest.boxes.recipe.recipe_input import RecipeInput
from watchtest.boxes.recipe.setup_plan import SetupPlan
from watchtest.core.model import Snapshot
from watchtest.errors import ConfigError

COPIED = re.compile(r"^[ \t]*(?:COPY|ADD)[ \t]+(?P<words>(?:\\\n|.)*)$", re.MULTILINE | re.IGNORECASE)


def configured_image(
    image: str, dockerfile: str, dependencies: Sequence[str], files: ProjectFiles
) -> ImageSource | None:
    """Return the image that the settings name, if any."""
    if image != "auto":
        return NamedImage(image)
    if not dockerfile:
        return None
    path = posixpath.normpath(dockerfile)
    if not files.has(path):
        raise ConfigError(
            f'box.dockerfile = "{dockerfile}": there is no such file in the workspace',
            hint="name it relative to the root of the workspace; ignored files are not in the box",
        )
    return built_image(DockerBuild(path, "", (), ""), dependencies, files)


def detected_image(
    files: ProjectFiles, language: Language, dependencies: Sequence[str], inputs: RecipeInput
) -> tuple[ImageSource, str]:
    """Return the image for the project, and the reason for it."""
    skipped: list[str] = []
    for devcontainer in devcontainers(files):
        why_not = devcontainer.unusable
        if language.NAME in devcontainer.features:
            why_not = f"it gets {language.NAME} from a feature, and features are not installed"
        if why_not:
            skipped.append(f"{devcontainer.path} cannot be used: {why_not}")
            continue
        others = f" (its features are not installed: {', '.join(devcontainer.features)})"
        because = "; ".join([*skipped, devcontainer.path + (others if devcontainer.features else "")])
        if isinstance(devcontainer.source, DockerBuild):
            return built_image(devcontainer.source, dependencies, files), because
        assert devcontainer.source is not None
        return NamedImage(devcontainer.source), because
    name, because = language.image(files, inputs)
    return NamedImage(name), "; ".join([*skipped, because])


def built_image(build: DockerBuild, dependencies: Sequence[str], files: ProjectFiles) -> BuiltImage:
    """Return a built image whose key covers the files that matter.

    These are the files that the Dockerfile copies by name, and dependency files in folders that it copies. The code
    itself is mirrored anyway.
    """
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
    """Yield what a Dockerfile copies, as paths or globs of the tree; the whole context if it uses a bind mount."""
    if "type=bind" in dockerfile:
        yield context or "."
    for found in COPIED.finditer(dockerfile):
        words = re.findall(r"[^\s\[\],\"'\\]+", found["words"])
        for word in words[:-1]:
            yield posixpath.normpath(posixpath.join(context, word.lstrip("/")))


PYTEST = "pytest"
"""Stands in a key for the pytest that we install if the commands do not."""


def recipe_of(inputs: RecipeInput, snapshot: Snapshot, read: ContentReader) -> Recipe:
    """Return the recipe of a workspace, from the settings and from its files."""
    files = ProjectFiles(snapshot, read)
    is_auto, has_image = isinstance(inputs.setup, str), inputs.image != "auto" or bool(inputs.dockerfile)
    language = language_of(files) if is_auto or not has_image else python
    plan = language.plan(files, inputs) if isinstance(inputs.setup, str) else SetupPlan(inputs.setup)
    if is_auto and inputs.has_repository:
        plan = replace(plan, commands=(*git_need.commands(files), *plan.commands))
    # The commands of `auto` name nothing that its files and the dependency files do not.
    found = setup_inputs(files, inputs.dependencies, () if is_auto else plan.commands, plan.files)
    image = configured_image(inputs.image, inputs.dockerfile, found.paths, files)
    because = "box.dockerfile" if inputs.image == "auto" else "box.image"
    toolchain = ""
    if image is None:
        image, because = detected_image(files, language, found.paths, inputs)
        toolchain = "" if devcontainers(files) else language.NAME
    # pytest is the default runner, but a project without Python files has no use for it.
    has_python = language.NAME == python.NAME or any(path.endswith(".py") for path in snapshot.entries)
    needs_pytest = is_auto and has_python and inputs.runs_pytest(snapshot)
    steps = (*plan.commands, PYTEST) if needs_pytest else plan.commands
    key = setup_key(steps, found, files)
    return Recipe(image, because, plan.commands, needs_pytest, key, toolchain, plan.choices)
