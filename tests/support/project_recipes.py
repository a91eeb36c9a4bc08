"""Recipes for projects that consist of a few text files."""

from __future__ import annotations

import hashlib

from watchtest.boxes.protocols import Recipe
from watchtest.boxes.recipe.recipe import RecipeInput, recipe_of
from watchtest.config.keys import DEPENDENCIES
from watchtest.core.model import Entry, EntryKind, Snapshot
from watchtest.runners.detect import detect

HOST = (3, 12)


def snapshot_of(files: dict[str, str]) -> Snapshot:
    digests = {path: hashlib.sha1(text.encode()).hexdigest() for path, text in files.items()}
    return Snapshot("t", {path: Entry(EntryKind.FILE, 0o644, len(text), digests[path]) for path, text in files.items()})


def recipe(
    files: dict[str, str],
    *,
    image: str = "auto",
    dockerfile: str = "",
    setup: str | tuple[str, ...] = "auto",
    dependencies: tuple[str, ...] = DEPENDENCIES,
) -> Recipe:
    def runs_pytest(_snapshot: Snapshot) -> bool:
        return any(spec.kind == "pytest" for spec in detect(files, lambda path: files[path].encode()))

    inputs = RecipeInput(HOST, dependencies, runs_pytest, image, dockerfile, setup)
    return recipe_of(inputs, snapshot_of(files), lambda path, _entry: files[path].encode())
