"""Which runs are affected by a change that arrives while the tests run."""

from __future__ import annotations

import pytest

from watchtest.core.events import EVERYTHING
from watchtest.core.supersede import reaches

PROMISED = ("tests/test_a.py::one", "tests/test_a.py::two", "tests/deep/test_b.py::three")
FIRST_FILE = PROMISED[:2]


@pytest.mark.parametrize(
    ("path", "finished", "expected"),
    [
        ("shop/cart.py", (), True),
        ("shop/cart.py", PROMISED[:1], True),
        ("shop/cart.py", PROMISED, False),
        (EVERYTHING, FIRST_FILE, True),
        (EVERYTHING, PROMISED, False),
        ("tests/test_a.py", PROMISED[:1], True),
        ("tests/test_a.py", FIRST_FILE, False),
        ("tests/deep/test_b.py", FIRST_FILE, True),
        ("tests/test_new.py", FIRST_FILE, True),
        ("conftest.py", FIRST_FILE, True),
        ("tests/deep/conftest.py", FIRST_FILE, True),
        ("tests/deep/conftest.py", PROMISED[2:], False),
        ("tests/other/conftest.py", (), False),
        ("README.md", (), False),
        ("docs/guide.rst", (), False),
        ("LICENSE", (), False),
        ("CHANGES.txt", (), False),
        ("requirements.txt", (), True),
        ("tests/data/prices.json", FIRST_FILE, True),
    ],
)
def test_a_change_reaches_the_tests_that_it_can_and_that_are_to_come(
    path: str, finished: tuple[str, ...], expected: bool
) -> None:
    assert reaches({path}, PROMISED, finished) is expected


def test_one_path_of_many_is_enough() -> None:
    assert reaches({"README.md", "tests/test_a.py", "code.py"}, PROMISED, FIRST_FILE)
    assert not reaches({"README.md", "tests/test_a.py"}, PROMISED, FIRST_FILE)


@pytest.mark.parametrize(("path", "expected"), [("code.py", True), ("tests/conftest.py", True), ("README.md", False)])
def test_while_nothing_is_promised_every_test_is_to_come(path: str, expected: bool) -> None:
    assert reaches({path}, (), ()) is expected


def test_a_text_that_is_tested_reaches_its_tests() -> None:
    promised = ("README.md::README.md", "tests/test_a.py::one")
    assert reaches({"README.md"}, promised, ())
    assert not reaches({"README.md"}, promised, promised[:1])
