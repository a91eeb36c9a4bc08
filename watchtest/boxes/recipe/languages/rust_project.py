"""Cargo packages and workspaces. They use the full image: it has the Python that the agent needs."""

from __future__ import annotations

import re

from watchtest.boxes.recipe.project_files import ProjectFiles, table

NAME = "rust"
MANIFEST = "Cargo.toml"


def is_used(files: ProjectFiles) -> bool:
    return files.has(MANIFEST)


def image(files: ProjectFiles, host_python: tuple[int, int]) -> tuple[str, str]:
    manifest = files.toml(MANIFEST)
    required = table(manifest, "package").get("rust-version")
    if not isinstance(required, str):
        required = table(manifest, "workspace", "package").get("rust-version")
    found = re.match(r"1\.\d+", required) if isinstance(required, str) else None
    if found is None:
        return "rust:1", f"{MANIFEST} names no rust-version"
    return f"rust:{found[0]}", f"{MANIFEST}: rust-version {required}"


def commands(files: ProjectFiles) -> list[str]:
    return ["cargo fetch --locked" if files.has("Cargo.lock") else "cargo fetch"] if files.has(MANIFEST) else []
