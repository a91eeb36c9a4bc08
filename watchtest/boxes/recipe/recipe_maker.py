"""Makes the recipes of a workspace: adds to its files and settings what only the machine and earlier runs can tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from watchtest.boxes.protocols import ContentReader, NamedImage, Recipe
from watchtest.boxes.recipe.languages import language_of
from watchtest.boxes.recipe.languages.python import python_project
from watchtest.boxes.recipe.languages.python.missing_modules import (
    MissingDependencies,
    demands,
    failure_texts,
    missing_dependencies,
)
from watchtest.boxes.recipe.project_files import ProjectFiles
from watchtest.boxes.recipe.recipe import recipe_of
from watchtest.boxes.recipe.recipe_input import RecipeInput
from watchtest.core.model import Execution, Snapshot
from watchtest.workspace.added_dependencies import AddedDependencies

PULL_LIMIT = 3
"""So many images are tried in a row: without a registry, none of them can be pulled."""


@dataclass(slots=True)
class RecipeMaker:
    """The one source of recipes for a lane. Its methods block."""

    settings: RecipeInput
    added: AddedDependencies
    list_images: Callable[[], frozenset[str]]
    """Returns the names of the images that the engine has; asked once, so that the choice of an image is stable."""
    _local_images: frozenset[str] | None = None
    _unavailable: set[str] = field(default_factory=set)

    def recipe(self, snapshot: Snapshot, read: ContentReader) -> Recipe:
        return recipe_of(self._inputs(), snapshot, read)

    def _inputs(self) -> RecipeInput:
        is_free = self.settings.image == "auto" and not self.settings.dockerfile
        if self._local_images is None:
            self._local_images = self.list_images() if is_free else frozenset()
        return replace(
            self.settings,
            local_images=self._local_images,
            unavailable_images=frozenset(self._unavailable),
            additions=self.added.names(),
        )

    def next_recipe(self, failed: Recipe, snapshot: Snapshot, read: ContentReader) -> Recipe | None:
        """Return a recipe with another allowed image after one could not be pulled; None if there is no other."""
        if not isinstance(failed.image, NamedImage):
            return None
        self._unavailable.add(failed.image.name)
        found = self.recipe(snapshot, read)
        if len(self._unavailable) < PULL_LIMIT and found.image != failed.image:
            return found
        self._unavailable.clear()  # the next run starts with the preferred one again
        return None

    def missing(self, execution: Execution, snapshot: Snapshot, read: ContentReader) -> MissingDependencies:
        """Return what the tests of a Python project lacked in this execution."""
        files = ProjectFiles(snapshot, read)
        found = demands(failure_texts(execution), snapshot.entries)
        if not found or language_of(files) is not python_project:
            return MissingDependencies()
        if not isinstance(self.settings.setup, str):
            return missing_dependencies(found, (), ())
        provided = python_project.provided(files, self._inputs())
        return missing_dependencies(found, python_project.named_lists(files), provided)
