"""Recipes for projects that consist of a few text files."""

from __future__ import annotations

import hashlib

from watchtest.boxes.protocols import Recipe
from watchtest.boxes.recipe.project_files import ProjectFiles
from watchtest.boxes.recipe.recipe import recipe_of
from watchtest.boxes.recipe.recipe_input import RecipeInput
from watchtest.config.keys import DEPENDENCIES
from watchtest.core.model import Entry, EntryKind, Snapshot
from watchtest.runners.detect import detect

HOST = (3, 12)


def snapshot_of(files: dict[str, str]) -> Snapshot:
    digests = {path: hashlib.sha1(text.encode()).hexdigest() for path, text in files.items()}
    return Snapshot("t", {path: Entry(EntryKind.FILE, 0o644, len(text), digests[path]) for path, text in files.items()})


def project_files(files: dict[str, str]) -> ProjectFiles:
    return ProjectFiles(snapshot_of(files), lambda path, _entry: files[path].encode())


def recipe(
    files: dict[str, str],
    *,
    image: str = "auto",
    dockerfile: str = "",
    setup: str | tuple[str, ...] = "auto",
    dependencies: tuple[str, ...] = DEPENDENCIES,
    local_images: frozenset[str] = frozenset(),
    unavailable_images: frozenset[str] = frozenset(),
    additions: tuple[str, ...] = (),
) -> Recipe:
    def runs_pytest(_snapshot: Snapshot) -> bool:
        return any(spec.kind == "pytest" for spec in detect(files, lambda path: files[path].encode()))

    circumstances = (local_images, unavailable_images, additions)
    inputs = RecipeInput(HOST, dependencies, runs_pytest, image, dockerfile, setup, *circumstances)
    return recipe_of(inputs, snapshot_of(files), lambda path, _entry: files[path].encode())
