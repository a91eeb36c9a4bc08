"""Which Python version a project gets: an allowed one whose image is there, before one that must be pulled."""

from __future__ import annotations

import pytest
from support.project_recipes import HOST, recipe

from watchtest.boxes.protocols import NamedImage


def image_of(python: str, *local: str, unavailable: tuple[str, ...] = ()) -> tuple[str, str]:
    files = {"pyproject.toml": f'[project]\nname="x"\nrequires-python="{python}"'} if python else {"setup.py": ""}
    found = recipe(files, local_images=frozenset(local), unavailable_images=frozenset(unavailable))
    assert isinstance(found.image, NamedImage)
    return found.image.name, found.because


@pytest.mark.parametrize(
    ("python", "local", "image"),
    [
        (">=3.12", (), "python:3.12-slim"),
        (">=3.12", ("python:3.13-slim",), "python:3.13-slim"),
        (">=3.12", ("python:3.13-slim", "python:3.12-slim"), "python:3.12-slim"),
        (">=3.13", ("python:3.13-slim",), "python:3.13-slim"),
        (">=3.13", ("python:3.11-slim", "other:3.13"), "python:3.15-slim"),
        (">=3.12", ("python:3.13",), "python:3.13"),
        (">=3.12", ("python:3.12", "python:3.12-slim"), "python:3.12-slim"),
        ("", ("python:3.13-slim",), "python:3.13-slim"),
    ],
)
def test_an_allowed_image_that_is_there_comes_before_one_that_is_not(
    python: str, local: tuple[str, ...], image: str
) -> None:
    assert HOST == (3, 12)
    assert image_of(python, *local)[0] == image


def test_the_reason_says_that_the_image_is_there() -> None:
    assert (
        image_of(">=3.12", "python:3.13-slim")[1] == "pyproject.toml: requires-python >=3.12; an image of 3.13 is here"
    )
    assert image_of("", "python:3.13-slim")[1] == "the project names no version; an image of 3.13 is here"


def test_after_a_failed_pull_the_next_allowed_version_is_chosen() -> None:
    name, because = image_of("<3.13", unavailable=("python:3.12-slim",))
    assert name == "python:3.11-slim"
    assert because.endswith("3.12 cannot be pulled")
    assert image_of("==3.12.*", unavailable=("python:3.12-slim",))[0] == "python:3.12-slim", "there is no other"
