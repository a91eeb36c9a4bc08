"""Tells whether the setup or the tests of a project call git, and installs it then: many images do not have it."""

from __future__ import annotations

import re

from watchtest.boxes.recipe.project_files import ProjectFiles, table, texts

BUILD_TOOLS = re.compile(
    r"(setuptools[-_.]scm|setuptools[-_.]git[-_.]?\w*|hatch[-_.]vcs|vcs[-_.]versioning|versioningit|dunamai|flit[-_.]scm"
    r"|\w+[-_.]dynamic[-_.]versioning|pbr|versioneer|miniver)\b",
    re.IGNORECASE,
)
"""What takes a version from git, as a requirement of a build."""
TOOL_TABLES = ("versioneer", "poetry-dynamic-versioning", "pdm-dynamic-versioning", "versioningit", "dunamai")
CALL = re.compile(
    r"""["']git(?:["']|\s+(?:describe|rev-parse|rev-list|log|ls-files|status|tag|show)\b)|\bversioneer\b"""
)
SCRIPTS = ("setup.py", "versioneer.py", "conftest.py", "tests/conftest.py", "test/conftest.py")

INSTALL = (
    # Only in our container: in the local box this would change the user's machine.
    'command -v git || (case "$VIRTUAL_ENV" in /opt/watchtest/*) ;; *) false;; esac && '
    "{ (apt-get -q update && apt-get -qy install --no-install-recommends git) || apk add git"
    " || dnf -y install git-core || microdnf -y install git-core || yum -y install git; })"
    " || echo 'git, which %s uses, cannot be installed here: use an image that has it if setup or tests fail without'"
)


def commands(files: ProjectFiles) -> tuple[str, ...]:
    """Return the command that installs git if this is a repository and the project calls git."""
    is_repository = files.snapshot.head is not None or files.snapshot.branch is not None
    because = user_of_git(files) if is_repository else ""
    return (INSTALL % because,) if because else ()


def user_of_git(files: ProjectFiles) -> str:
    """Return what in the project calls git, or ""."""
    project = files.toml("pyproject.toml") if files.has("pyproject.toml") else {}
    for requirement in texts(table(project, "build-system").get("requires")):
        if found := BUILD_TOOLS.match(requirement.strip()):
            return found[1]
    tools = table(project, "tool")
    for name in TOOL_TABLES:
        if name in tools:
            return name
    if table(tools, "pdm", "version").get("source") == "scm":
        return "pdm"
    required = files.ini("setup.cfg").get("options", "setup_requires", fallback="").split()
    for requirement in required:
        if found := BUILD_TOOLS.match(requirement):
            return found[1]
    for path in SCRIPTS:
        text = files.text(path)
        if CALL.search(text) or (path == "setup.py" and BUILD_TOOLS.search(text)):
            return path
    return ""
