"""Read what hatch installs for the tests: the environments for tests in pyproject.toml or hatch.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watchtest.boxes.recipe.languages.python.install_requests import InstallRequest
from watchtest.boxes.recipe.languages.python.requirement_lists import Purpose, purpose_of
from watchtest.boxes.recipe.project_files import ProjectFiles, table, texts

DEFAULT, BUILT_IN = "default", "hatch-test"
BUILT_IN_DEPENDENCIES = ("pytest", "pytest-mock", "pytest-rerunfailures", "pytest-xdist")
"""What `hatch test` installs by itself. pytest-randomly is left out, because it is off unless requested."""


def hatch_requests(files: ProjectFiles) -> list[InstallRequest]:
    """Return what each environment for tests installs. Variables such as `{root}` are not resolved."""
    project = files.toml("pyproject.toml") if files.has("pyproject.toml") else {}
    own = files.toml("hatch.toml") if files.has("hatch.toml") else {}
    return [
        *_requests("pyproject.toml [tool.hatch.envs", table(project, "tool", "hatch", "envs")),
        *_requests("hatch.toml [envs", table(own, "envs")),
    ]


def _requests(where: str, environments: Mapping[str, Any]) -> list[InstallRequest]:
    found = []
    for name in environments:
        settings = table(environments, name)
        if name == DEFAULT or purpose_of(name) is Purpose.TESTS:
            request = InstallRequest(f"{where}.{name}]")
            if name == BUILT_IN and "dependencies" not in settings:
                request.requirements += BUILT_IN_DEPENDENCIES
            for key in ("dependencies", "extra-dependencies"):
                request.add_lines(texts(settings.get(key)))
            request.extras += texts(settings.get("features"))
            request.groups += texts(settings.get("dependency-groups"))
            found.append(request)
    return found
