"""The languages that a project may be written in, one module per language. The first one that is used wins."""

from __future__ import annotations

from typing import Protocol

from watchtest.boxes.recipe.languages import go_project, node_project, python_project, rust_project
from watchtest.boxes.recipe.project_files import ProjectFiles


class Language(Protocol):
    """What the module of a language offers."""

    NAME: str

    def is_used(self, files: ProjectFiles) -> bool:
        """Return whether the project is written in this language."""

    def image(self, files: ProjectFiles, host_python: tuple[int, int]) -> tuple[str, str]:
        """Return the official image for the project, and the reason for its version."""

    def commands(self, files: ProjectFiles) -> list[str]:
        """Return the shell commands that install the dependencies."""


LANGUAGES: tuple[Language, ...] = (python_project, go_project, rust_project, node_project)


def language_of(files: ProjectFiles) -> Language:
    """Return the language of a project; the default is Python, which our agent and pytest need anyway."""
    return next((language for language in LANGUAGES if language.is_used(files)), python_project)
