"""What a recipe is made of besides the files of the project."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from watchtest.core.model import Snapshot


@dataclass(frozen=True, slots=True)
class RecipeInput:
    """The settings and the circumstances that a recipe depends on; "auto" and "" leave the choice to the project."""

    host_python: tuple[int, int]
    """Major and minor version of the Python that runs watchtest, the default for a project that names none."""
    dependencies: tuple[str, ...]
    """Globs of the files that setup depends on; a glob without a slash matches in the root of the tree."""
    runs_pytest: Callable[[Snapshot], bool]
    """Whether pytest is among the runners of a tree: a box for other runners needs neither pytest nor Python."""
    image: str = "auto"
    dockerfile: str = ""
    setup: tuple[str, ...] | str = "auto"
    local_images: frozenset[str] = frozenset()
    """Names of images that the engine has; an allowed one is preferred to one that must be pulled."""
    unavailable_images: frozenset[str] = frozenset()
    """Names of images that could not be pulled."""
    additions: tuple[str, ...] = ()
    """Distributions that tests turned out to need, by normalized name."""
    has_repository: bool = True
    """Whether the box may get a git repository, for which git has to be installed."""
