"""What a box of a project is made of, read from a snapshot: an image, and the commands that make it ready for tests.

Decides; pulls, builds and runs nothing. It is asked before every run, so contents are read and parsed only when they
have changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from watchtest.boxes.protocols import Read, Recipe
from watchtest.boxes.recipe.dependency_files import dependency_files, setup_key
from watchtest.boxes.recipe.languages import language_of
from watchtest.boxes.recipe.languages import python_project as python
from watchtest.boxes.recipe.project_files import ProjectFiles
from watchtest.boxes.recipe.zz_boxes_recipe_imagechoice import found_image, given_image
from watchtest.core.model import Snapshot

PYTEST = "pytest"
"""In a key, for the pytest that is installed where the commands do not bring it."""


@dataclass(frozen=True, slots=True)
class RecipeWish:
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


def recipe_of(wish: RecipeWish, snapshot: Snapshot, read: Read) -> Recipe:
    """The recipe of a workspace: what was asked for, or what its own files say."""
    files = ProjectFiles(snapshot, read)
    dependencies = dependency_files(files, wish.dependencies)
    image = given_image(wish.image, wish.dockerfile, dependencies, files)
    because = "box.dockerfile" if wish.image == "auto" else "box.image"
    commands, needs_pytest = wish.setup, False
    if image is None or isinstance(commands, str):
        language = language_of(files)
        if image is None:
            image, because = found_image(files, language, dependencies, wish.host_python)
        if isinstance(commands, str):
            commands = tuple(language.commands(files))
            # Where nothing else is known to run tests, pytest is named; without a line of Python there is no use in it.
            has_python = language.NAME == python.NAME or any(path.endswith(".py") for path in snapshot.entries)
            needs_pytest = has_python and wish.runs_pytest(snapshot)
    done = (*commands, PYTEST) if needs_pytest else commands
    return Recipe(image, because, commands, needs_pytest, setup_key(done, dependencies, files))
