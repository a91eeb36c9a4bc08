"""Go modules. They use the full image: it has git for `go mod download`, and the Python that the agent needs."""

from __future__ import annotations

import re

from watchtest.boxes.recipe.project_files import ProjectFiles
from watchtest.boxes.recipe.recipe_input import RecipeInput
from watchtest.boxes.recipe.setup_plan import SetupPlan

NAME = "go"
MODULE = "go.mod"
TOOLCHAIN = re.compile(r"^toolchain\s+go(?P<minor>1\.\d+)", re.MULTILINE)
LEAST = re.compile(r"^go\s+(?P<minor>1\.\d+)", re.MULTILINE)


def is_used(files: ProjectFiles) -> bool:
    return files.has(MODULE)


def image(files: ProjectFiles, _inputs: RecipeInput) -> tuple[str, str]:
    text = files.text(MODULE)
    found = TOOLCHAIN.search(text) or LEAST.search(text)
    if found is None:
        return "golang:1", f"{MODULE} names no version"
    return f"golang:{found['minor']}", f"{MODULE}: {found[0]}"


def plan(files: ProjectFiles, _inputs: RecipeInput) -> SetupPlan:
    return SetupPlan(("go mod download",) if files.has(MODULE) else ())
