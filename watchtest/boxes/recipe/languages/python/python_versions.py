"""Choose the Python version of a project's image, among those that the project allows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from watchtest.boxes.recipe.project_files import ProjectFiles, table
from watchtest.boxes.recipe.recipe_input import RecipeInput

PROJECT = "pyproject.toml"
PIN = ".python-version"
KNOWN = tuple((3, minor) for minor in range(8, 16))
"""The agent needs 3.8 or newer."""
VARIANTS = ("-slim", "")
"""The smaller image is preferred, but a full one that is there needs no download."""


def image_of(folders: Sequence[ProjectFiles], inputs: RecipeInput) -> tuple[str, str]:
    """Return the image with the wanted version that is there, or else the one to be pulled, and the reason."""
    version, because = wanted_python(folders, inputs)
    names = _images(version)
    return next((name for name in names if name in inputs.local_images), names[0]), because


def wanted_python(folders: Sequence[ProjectFiles], inputs: RecipeInput) -> tuple[tuple[int, int], str]:
    """Return a version that the project in these folders allows, and the reason.

    Versions whose image is there come first, then those that may be pulled. In both groups the host's own version is
    preferred, then the newest.
    """
    host = inputs.host_python
    requirements = [one for files in folders for one in _version_requirements(files)]
    named = ", ".join(f"{path}: {words}" for path, words, _ in requirements)
    because = named or "the Python that runs watchtest; the project names none"
    allowed = _allowed([host, *sorted({*KNOWN} - {host}, reverse=True)], [one for *_, one in requirements])
    if not allowed:
        return host, f"the Python that runs watchtest; no known version satisfies {named}"
    present = [version for version in allowed if not inputs.local_images.isdisjoint(_images(version))]
    pullable = [version for version in allowed if inputs.unavailable_images.isdisjoint(_images(version))]
    chosen = [*present, *pullable, *allowed][0]
    if chosen != allowed[0]:
        why = f"an image of {_text(chosen)} is here" if chosen in present else f"{_text(allowed[0])} cannot be pulled"
        because = f"{named or 'the project names no version'}; {why}"
    return chosen, because


def _allowed(order: list[tuple[int, int]], requirements: list[SpecifierSet]) -> list[tuple[int, int]]:
    # The image of 3.12 has the newest 3.12.x; patch 0 is for projects that require an early patch release.
    for patch in (99, 0):
        found = [
            version
            for version in order
            if all(one.contains(f"{_text(version)}.{patch}", prereleases=True) for one in requirements)
        ]
        if found:
            return found
    return []


def _images(version: tuple[int, int]) -> list[str]:
    return [f"python:{_text(version)}{variant}" for variant in VARIANTS]


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _version_requirements(files: ProjectFiles) -> Iterator[tuple[str, str, SpecifierSet]]:
    """Yield each requirement: the file, its text, and the versions it allows."""
    if files.has(PROJECT):
        project = files.toml(PROJECT)
        where = files.path_in_tree(PROJECT)
        yield from _requirement(where, "requires-python", table(project, "project").get("requires-python"))
        yield from _poetry_requirement(table(project, "tool", "poetry", "dependencies").get("python"))
    if found := re.search(r"^\s*(?:cpython[-@]?)?(3\.\d+)", files.text(PIN), re.MULTILINE):
        yield files.path_in_tree(PIN), found[1], SpecifierSet(f"=={found[1]}.*")
    settings = files.ini("setup.cfg")
    yield from _requirement(
        files.path_in_tree("setup.cfg"), "python_requires", settings.get("options", "python_requires", fallback=None)
    )
    found = re.search(r"""python_requires\s*=\s*["']([^"']+)["']""", files.text("setup.py"))
    yield from _requirement(files.path_in_tree("setup.py"), "python_requires", found[1] if found else None)


def _requirement(path: str, key: str, value: object) -> Iterator[tuple[str, str, SpecifierSet]]:
    if not isinstance(value, str):
        return
    try:
        yield path, f"{key} {value}", SpecifierSet(value)
    except InvalidSpecifier:
        return  # the installation of the project reports the error


def _poetry_requirement(value: object) -> Iterator[tuple[str, str, SpecifierSet]]:
    """Yield poetry's requirement: `^3.11` means at least 3.11 and below 4, `~3.11` means any 3.11."""
    if not isinstance(value, str) or "|" in value:
        return
    parts = [_from_poetry(part) for part in value.split(",")]
    try:
        yield PROJECT, f"python {value}", SpecifierSet(",".join(part for part in parts if part))
    except InvalidSpecifier:
        return


def _from_poetry(part: str) -> str:
    found = re.fullmatch(r"(\^|~)?\s*(3)(?:\.(\d+))?((?:\.\d+)*)(?:\.\*)?", part.strip())
    if found is None:
        return part.strip() if part.strip() != "*" else ""
    how, major, minor, patch = found.groups()
    if how == "^" or (how == "~" and minor is None):
        return f">={major}.{minor or 0}{patch},<4"
    return f"=={major}.*" if minor is None else f"=={major}.{minor}.*"
