"""Cargo packages and workspaces. They use the full image: it has the Python that the agent needs."""

from __future__ import annotations

import re

from watchtest.boxes.recipe.project_files import ProjectFiles, table
from watchtest.boxes.recipe.recipe_input import RecipeInput
from watchtest.boxes.recipe.setup_plan import SetupPlan

NAME = "rust"
MANIFEST = "Cargo.toml"


def is_used(files: ProjectFiles) -> bool:
    return files.has(MANIFEST)


def image(files: ProjectFiles, _inputs: RecipeInput) -> tuple[str, str]:
    manifest = files.toml(MANIFEST)
    required = table(manifest, "package").get("rust-version")
    if not isinstance(required, str):
        required = table(manifest, "workspace", "package").get("rust-version")
    found = re.match(r"1\.\d+", required) if isinstance(required, str) else None
    if found is None:
        return "rust:1", f"{MANIFEST} names no rust-version"
    return f"rust:{found[0]}", f"{MANIFEST}: rust-version {required}"


def plan(files: ProjectFiles, _inputs: RecipeInput) -> SetupPlan:
    return SetupPlan(
        ("cargo fetch --locked" if files.has("Cargo.lock") else "cargo fetch",) if files.has(MANIFEST) else ()
    )
