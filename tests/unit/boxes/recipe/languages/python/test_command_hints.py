"""Commands in workflows, Makefiles and justfiles are hints if they run pytest or name a list for tests."""

from __future__ import annotations

import pytest
from support.project_recipes import project_files

from watchtest.boxes.recipe.languages.python.command_hints import command_hints


@pytest.mark.parametrize(
    ("line", "extras", "groups", "files"),
    [
        ("pip install -e .[test,redis]", ["test", "redis"], [], []),
        ("python -m pip install '.[testing]' && ruff check .[no]", ["testing"], [], []),
        ("uv sync --group=test --extra a", ["a"], ["test"], []),
        ("uv run --extra a --group b pytest -n auto", ["a"], ["b"], []),
        ("uv run --group b coverage run -m pytest", [], ["b"], []),
        ("uv pip install -r requirements/test.txt", [], [], ["requirements/test.txt"]),
        ("pip install -r requirements.txt pytest", [], [], ["requirements.txt"]),
        ("poetry install --with test --extras 'a b'", ["a", "b"], ["test"], []),
        ("pdm install -G tests -G :all", [], ["tests"], []),
        ("pip install \\\n    -e '.[test]'", ["test"], [], []),
    ],
)
def test_a_command_for_tests_is_read(line: str, extras: list[str], groups: list[str], files: list[str]) -> None:
    [hint] = command_hints(project_files({"Makefile": f"test:\n\t{line}\n"}))
    assert (hint.extras, hint.groups, hint.files) == (extras, groups, files)
    assert hint.origin == "Makefile"


@pytest.mark.parametrize(
    "line",
    [
        "pip install -e .[docs]",
        "uv sync --group lint --all-extras",
        "uv run ruff check",
        "pip install build",
        "pip install -r x.txt",
    ],
)
def test_other_commands_are_not(line: str) -> None:
    assert command_hints(project_files({".github/workflows/ci.yml": f"- run: {line}\n"})) == []


def test_every_extra_can_be_meant() -> None:
    [hint] = command_hints(project_files({"justfile": "test:\n  uv run --all-extras pytest\n"}))
    assert hint.has_all_extras
