"""What nox installs for the tests is read from the syntax tree of noxfile.py."""

from __future__ import annotations

import pytest
from support.project_recipes import project_files

from watchtest.boxes.recipe.languages.python.install_requests import InstallRequest
from watchtest.boxes.recipe.languages.python.nox_sessions import nox_request


def request(body: str, decorator: str = "@nox.session", name: str = "tests") -> InstallRequest:
    text = f"import nox\nP = nox.project.load_toml('pyproject.toml')\n{decorator}\ndef {name}(session):\n    {body}\n"
    found = nox_request(project_files({"noxfile.py": text}))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("body", "extras", "groups", "files", "requirements"),
    [
        ("session.install('-e.[a,b]', 'x>=1')", ["a", "b"], [], [], ["x>=1"]),
        ("session.install('.', '-r', 'needs.txt')", [], [], ["needs.txt"], []),
        ("session.install('-r', computed(), 'x')", [], [], ["--unknown"], ["x"]),
        ("session.install(*P['dependency-groups']['test'], 'x')", [], ["test"], [], ["x"]),
        ("session.install(*P['project']['optional-dependencies']['t'])", ["t"], [], [], []),
        ("session.install(*nox.project.dependency_groups(P, 'a', 'b'))", [], ["a", "b"], [], []),
        ("session.install('-e', '.', '--group', 'test')", [], ["test"], [], []),
        ("session.run('uv', 'sync', '--extra=a', '--group', 'b')", ["a"], ["b"], [], []),
        ("session.run_install('uv', 'pip', 'install', 'x')", [], [], [], ["x"]),
        ("session.run('poetry', 'install', '--with', 'a,b')", [], ["a", "b"], [], []),
        ("session.run('pytest', '-r', 'a')", [], [], [], []),
        ("session.install(f'x{1}', '--no-deps', '-i', 'index')", [], [], [], []),
    ],
)
def test_what_a_session_installs_is_read(
    body: str, extras: list[str], groups: list[str], files: list[str], requirements: list[str]
) -> None:
    found = request(body)
    assert (found.extras, found.groups, found.requirements) == (extras, groups, requirements)
    assert found.files == files


def test_the_arguments_of_nox_uv_count() -> None:
    found = request("pass", "@nox_uv.session(uv_groups=['test'], uv_extras=['a'])")
    assert (found.extras, found.groups) == (["a"], ["test"])


@pytest.mark.parametrize(
    "text", ["", "def tests(session): session.install('x')", "import nox\n@nox.session\ndef lint(s): pass"]
)
def test_a_file_without_a_session_for_tests_says_nothing(text: str) -> None:
    assert nox_request(project_files({"noxfile.py": text})) is None


def test_the_plainest_session_counts() -> None:
    text = "@session\ndef test_typing(s): s.install('mypy')\n@session(name='tests-slow')\ndef a(s): s.install('slow')\n"
    found = nox_request(project_files({"noxfile.py": text + "@session\ndef tests(s): s.install('pytest')\n"}))
    assert found is not None
    assert (found.origin, found.requirements) == ("noxfile.py tests", ["pytest"])
