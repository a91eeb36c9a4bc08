"""Packages of Node.js. They use the full image: it has the Python that the agent needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from watchtest.boxes.recipe.project_files import ProjectFiles, table
from watchtest.boxes.recipe.recipe_input import RecipeInput
from watchtest.boxes.recipe.setup_plan import SetupPlan

NAME = "node"
MANIFEST = "package.json"
PINS = (".nvmrc", ".node-version")
CURRENT = 24
"""The long-term release for a project that names no version."""
KNOWN = (CURRENT, 22, 20, 18, 26, 25, 23, 21, 19, 16, 14)
"""Releases to choose from, in order of preference; long-term releases come first."""
COMPARATOR = re.compile(r"(?P<how>[<>]=?|[\^~=])?\s*v?(?P<major>\d+|[xX*])(?P<rest>(?:\.[\dxX*]+)*)\S*")
RANGE = re.compile(r"v?(\d+)(?:\.[\dxX*]+)*\s+-\s+v?(\d+)(?:\.[\dxX*]+)*")


def is_used(files: ProjectFiles) -> bool:
    return files.has(MANIFEST)


def image(files: ProjectFiles, _inputs: RecipeInput) -> tuple[str, str]:
    for path in PINS:
        if found := re.match(r"\s*v?(\d+)", files.text(path)):
            return f"node:{found[1]}", f"{path}: {found[1]}"
    required = table(files.json(MANIFEST), "engines").get("node")
    if not isinstance(required, str):
        return f"node:{CURRENT}", f"{MANIFEST} names no engines.node"
    major = next((major for major in KNOWN if _allows(required, major)), None)
    if major is None:
        return f"node:{CURRENT}", f"{MANIFEST}: no known release satisfies engines.node {required}"
    return f"node:{major}", f"{MANIFEST}: engines.node {required}"


def plan(files: ProjectFiles, _inputs: RecipeInput) -> SetupPlan:
    return SetupPlan((" && ".join(_install(files)),) if files.has(MANIFEST) else ())


def _install(files: ProjectFiles) -> Iterator[str]:
    if files.has("package-lock.json") or files.has("npm-shrinkwrap.json"):
        yield "npm ci"
    elif files.has("pnpm-lock.yaml"):
        yield "(command -v pnpm || npm install -g pnpm)"
        yield "pnpm install --frozen-lockfile"
    elif files.has("yarn.lock") and _has_modern_yarn(files):
        yield "(command -v corepack || npm install -g corepack)"
        yield "corepack enable"
        yield "yarn install --immutable"
    elif files.has("yarn.lock"):
        yield "(command -v yarn || npm install -g yarn)"
        yield "yarn install --frozen-lockfile"
    else:
        yield "npm install"


def _has_modern_yarn(files: ProjectFiles) -> bool:
    manager = files.json(MANIFEST).get("packageManager")
    return files.has(".yarnrc.yml") or (isinstance(manager, str) and re.match(r"yarn@[2-9]", manager) is not None)


def _allows(required: str, major: int) -> bool:
    """Return whether some release of this major version is in the range, as npm reads it."""
    return any(_allows_all(part, major) for part in required.split("||"))


def _allows_all(part: str, major: int) -> bool:
    if between := RANGE.search(part):
        return int(between[1]) <= major <= int(between[2])
    return all(_is_met(found, major) for found in COMPARATOR.finditer(part))


def _is_met(found: re.Match[str], major: int) -> bool:
    if not found["major"].isdigit():
        return True
    bound = int(found["major"])
    is_bare = not re.search(r"[1-9]", found["rest"])
    comparisons = {
        ">=": major >= bound,
        # Above 18 is 19, but above 18.2 is 18.3.
        ">": major > bound or (major == bound and bool(found["rest"])),
        "<": major < bound or (major == bound and not is_bare),
        "<=": major <= bound,
    }
    return comparisons.get(found["how"], major == bound)
