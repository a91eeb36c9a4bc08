"""What a project is written in: a module a language, each with the same three functions. The first that knows it wins.

`is_here(files)`            whether the project is one of this language
`image(files, host_python)` the official image for it, and why that one
`commands(files)`           the shell commands that install what it depends on
"""

from __future__ import annotations

from typing import Protocol

from watchtest.boxes.recipe.languages import go_project, node_project, python_project, rust_project
from watchtest.boxes.recipe.project_files import ProjectFiles


class Language(Protocol):
    NAME: str

    def is_here(self, files: ProjectFiles) -> bool: ...
    def image(self, files: ProjectFiles, host_python: tuple[int, int]) -> tuple[str, str]: ...
    def commands(self, files: ProjectFiles) -> list[str]: ...


LANGUAGES: tuple[Language, ...] = (python_project, go_project, rust_project, node_project)


def language_of(files: ProjectFiles) -> Language:
    """Python where nothing says otherwise: our own agent and pytest are at home there."""
    return next((language for language in LANGUAGES if language.is_here(files)), python_project)
