"""Which environment of tox runs the tests, and which lines apply to it."""

from __future__ import annotations

import pytest
from support.project_recipes import project_files

from watchtest.boxes.recipe.languages.python.tox_environments import (
    applicable,
    choose_environment,
    expand,
    factors_of,
    tox_request,
)

PYTHON = (3, 12)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("py312", ["py312"]),
        ("py{311, 312}-{a,b}", ["py311-a", "py311-b", "py312-a", "py312-b"]),
        ("3.1{0-2}{,-cov}", ["3.10", "3.10-cov", "3.11", "3.11-cov", "3.12", "3.12-cov"]),
        ("py{3{1", ["py{3{1"]),
    ],
)
def test_braces_and_ranges_stand_for_many_names(text: str, names: list[str]) -> None:
    assert expand(text) == names


def test_no_name_stands_for_more_than_can_be_listed() -> None:
    assert len(expand("{0-999}" * 9)) <= 500


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["lint", "py311", "py312"], "py312"),
        (["py311", "py310"], "py310"),
        (["3.12-mypy", "3.12-tests-rich", "3.12-tests"], "3.12-tests"),
        (["py312-cov", "py312"], "py312"),
        (["docs", "test"], "test"),
        (["pypy3", "lint"], ""),
        (["py312-lint", "unit"], "unit"),
        ([], ""),
    ],
)
def test_the_environment_for_tests_with_this_python_is_chosen(names: list[str], chosen: str) -> None:
    assert choose_environment(names, PYTHON) == chosen


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("pytest", "pytest"),
        ("py312: six", "six"),
        ("py311: six", ""),
        ("py{311,312}: six", "six"),
        ("py312-cov: six", "six"),
        ("py312-!cov: six", ""),
        ("!cov: six", ""),
        ("lint,cov: six", "six"),
        ("3.12: six", "six"),
        ("git+https://host/x", "git+https://host/x"),
        ("six; python_version < '3'", "six; python_version < '3'"),
    ],
)
def test_a_condition_decides_about_its_line(line: str, rest: str) -> None:
    assert applicable(line, factors_of("py312-cov", PYTHON)) == rest


@pytest.mark.parametrize(
    "files",
    [
        {"tox.ini": "[tox]\nenv_list=py312\n[testenv]\nextras=a,b\ndependency_groups=\n  c\ndeps =\n  d\n  -r e.txt"},
        {"setup.cfg": "[tox:tox]\nenvlist=py312\n[testenv]\nextras=a\n  b\ndependency_groups=c\ndeps = d\n  -re.txt"},
        {
            "pyproject.toml": "[tool.tox]\nlegacy_tox_ini = '''\n[tox]\nenvlist=py312\n[testenv]\nextras=a,b\n"
            "dependency_groups=c\ndeps=d\n  -r {toxinidir}/e.txt\n'''"
        },
        {
            "tox.toml": "env_list=['py312']\n[env_run_base]\nextras=['a','b']\n[env.py312]\ndependency_groups=['c']\n"
            "deps=['d', '-r {tox_root}{/}e.txt', {replace='ref'}]"
        },
        {
            "pyproject.toml": "[tool.tox.env_run_base]\nextras=['x']\n[tool.tox.env.test]\nextras=['a','b']\n"
            "deps=['d','-r e.txt']\n"
            "dependency_groups=['c']"
        },
    ],
    ids=["tox.ini", "setup.cfg", "legacy", "tox.toml", "pyproject.toml"],
)
def test_every_place_of_the_settings_is_read(files: dict[str, str]) -> None:
    found = tox_request(project_files(files), PYTHON)
    assert found is not None
    assert (found.extras, found.groups, found.requirements, found.files) == (["a", "b"], ["c"], ["d"], ["e.txt"])


def test_a_project_without_tox_has_no_environment() -> None:
    assert tox_request(project_files({"setup.cfg": "[metadata]", "pyproject.toml": "[project]"}), PYTHON) is None


def test_references_that_go_in_circles_come_to_an_end() -> None:
    files = {"tox.ini": "[testenv]\ndeps = {[testenv]deps}\n  a\n  {[none]deps}\n"}
    assert tox_request(project_files(files), PYTHON) is not None
