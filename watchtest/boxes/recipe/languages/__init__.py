"""The languages that a project may be written in, one module per language. The first one that is used wins."""

from __future__ import annotations

from typing import Protocol

from watchtest.boxes.recipe.languages import go_project, node_project, rust_project
from watchtest.boxes.recipe.languages.python import python_project
from watchtest.boxes.recipe.project_files import ProjectFiles
from watchtest.boxes.recipe.recipe_input import RecipeInput
from watchtest.boxes.recipe.setup_plan import SetupPlan


class Language(Protocol):
    """What the module of a language offers."""

    NAME: str

    def is_used(self, files: ProjectFiles) -> bool:
        """Return whether the project is written in this language."""

    def image(self, files: ProjectFiles, inputs: RecipeInput) -> tuple[str, str]:
        """Return the official image for the project, and the reason for its version."""

    def plan(self, files: ProjectFiles, inputs: RecipeInput) -> SetupPlan:
        """Return the shell commands that install the dependencies, and the reasons for them."""


LANGUAGES: tuple[Language, ...] = (python_project, go_project, rust_project, node_project)


def language_of(files: ProjectFiles) -> Language:
    """Return the language of a project; the default is Python, which our agent and pytest need anyway."""
    return next((language for language in LANGUAGES if language.is_used(files)), python_project)
