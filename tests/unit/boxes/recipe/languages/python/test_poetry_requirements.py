"""Requirements of poetry and pipenv in the words of pip."""

from __future__ import annotations

import pytest

from watchtest.boxes.recipe.languages.python.poetry_requirements import requirements_of


@pytest.mark.parametrize(
    ("value", "requirement"),
    [
        ("^1.2.3", "x>=1.2.3,<2"),
        ("^0.2.3", "x>=0.2.3,<0.3"),
        ("^0.0.3", "x>=0.0.3,<0.0.4"),
        ("^0.0", "x>=0.0,<0.1"),
        ("^1", "x>=1,<2"),
        ("^7.1b1", "x>=7.1b1,<8"),
        ("~1.2.3", "x>=1.2.3,<1.3"),
        ("~1", "x>=1,<2"),
        ("1.2", "x==1.2"),
        ("1.*", "x==1.*"),
        ("*", "x"),
        (">=1,<3", "x>=1,<3"),
        ("~=1.4", "x~=1.4"),
        ({"version": "^1.0", "extras": ["a", "b"], "markers": "os_name == 'nt'"}, "x[a,b]>=1.0,<2; os_name == 'nt'"),
    ],
)
def test_a_version_is_translated(value: object, requirement: str) -> None:
    assert requirements_of({"x": value}) == {"x": requirement}


def test_what_pip_cannot_get_from_the_index_is_left_out() -> None:
    assert requirements_of({"python": "^3.9", "a": {"path": "../a"}, "b": {"git": "x"}, "c": "^1 || ^2", "d": 3}) == {}
