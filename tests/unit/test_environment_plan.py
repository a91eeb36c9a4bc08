"""What a project's own files say about its setup. Only the plan: the contract and Docker tests run it."""

from __future__ import annotations

import pytest

from watchtest.boxes.environment import Setup, plan
from watchtest.core.model import Entry, Kind, Snapshot

PROJECT = '[build-system]\nrequires = ["hatchling"]\n[project]\nname = "x"\n'


def planned(files: dict[str, str], wish: str | tuple[str, ...] = "auto") -> Setup:
    entries = {path: Entry(Kind.FILE, 0o644, len(text), text) for path, text in files.items()}
    return plan(wish, Snapshot("t", entries), lambda path, _entry: files[path].encode())


@pytest.mark.parametrize(
    ("files", "commands"),
    [
        ({"test_a.py": ""}, ()),
        ({"requirements.txt": "x", "requirements-dev.txt": "y"}, ("-r requirements-dev.txt", "-r requirements.txt")),
        ({"my requirements.txt": "", "requirements space.txt": ""}, ("-r 'requirements space.txt'",)),
        ({"deep/requirements.txt": "x"}, ()),
        ({"pyproject.toml": PROJECT}, ("-e .",)),
        ({"pyproject.toml": PROJECT + "[project.optional-dependencies]\ntest=[]\ndev=[]\nx=[]"}, ("-e '.[test,dev]'",)),
        ({"pyproject.toml": PROJECT + "optional-dependencies = 3"}, ("-e .",)),
        ({"pyproject.toml": "[tool.ruff]\n"}, ()),
        ({"pyproject.toml": "[project\n"}, ()),
        ({"setup.py": ""}, ("-e .",)),
        ({"pyproject.toml": '[dependency-groups]\ntests = ["b>1", {include-group = "c"}]\nc = ["d"]'}, ("'b>1' d",)),
        ({"pyproject.toml": '[dependency-groups]\ntests = [{include-group = "tests"}]'}, ()),
        ({"pyproject.toml": "[dependency-groups]\ntests = 3"}, ()),
        ({"pyproject.toml": "dependency-groups = 3"}, ()),
    ],
)
def test_ordinary_projects_are_installed(files: dict[str, str], commands: tuple[str, ...]) -> None:
    found = planned(files)
    assert found.commands == tuple(f"pip install {command}" for command in commands)
    assert found.needs_pytest


def test_given_commands_are_all_that_is_done() -> None:
    found = planned({"requirements.txt": "x"}, ("make deps",))
    assert found.commands == ("make deps",)
    assert not found.needs_pytest


def test_the_key_changes_with_dependencies_and_commands_and_with_nothing_else() -> None:
    first = planned({"requirements.txt": "x", "a.py": "1"})
    assert planned({"requirements.txt": "x", "a.py": "2"}).key == first.key
    assert planned({"requirements.txt": "y", "a.py": "1"}).key != first.key
    assert planned({"requirements.txt": "x"}, ("make",)).key != first.key
