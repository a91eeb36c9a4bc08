"""Which projects run with unittest; in doubt, pytest is chosen."""

from __future__ import annotations

import pytest

from watchtest.runners.detect import FILE_LIMIT, uses_only_unittest

CASE = b"import unittest\n\nclass Sums(unittest.TestCase):\n    def test_sum(self):\n        pass\n"
PROJECT = {"pyproject.toml": b"[project]\nname = 'sums'\n", "sums.py": b"", "tests/test_sums.py": CASE}


def uses(files: dict[str, bytes]) -> bool:
    return uses_only_unittest(files, files.__getitem__)


@pytest.mark.parametrize(
    "content",
    [
        CASE,
        b"from unittest import TestCase, mock\n\nclass Sums(TestCase):\n    def test_sum(self): pass\n",
        b"import os, unittest\nclass TestSums(unittest.IsolatedAsyncioTestCase):\n    async def test_sum(self): pass\n",
        b"# pytest would do, too\n" + CASE,
    ],
)
def test_a_project_whose_tests_are_test_cases_uses_unittest_alone(content: bytes) -> None:
    assert uses({**PROJECT, "tests/test_sums.py": content})


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("tests/conftest.py", b""),
        ("pytest.ini", b"[pytest]\n"),
        ("pyproject.toml", b"[tool.pytest.ini_options]\n"),
        ("pyproject.toml", b'[dependency-groups]\ndev = ["pytest>=8"]\n'),
        ("requirements-dev.txt", b"mypy\npytest\n"),
        ("requirements/test.txt", b"pytest-cov\n"),
        ("tox.ini", b"[testenv]\ncommands = pytest {posargs}\n"),
        ("setup.cfg", b"[tool:pytest]\n"),
        ("tests/test_plain.py", b"def test_sum():\n    assert True\n"),
        ("tests/test_async.py", b"async def test_sum():\n    assert True\n"),
        ("tests/test_class.py", b"class TestSums:\n    def test_sum(self):\n        assert True\n"),
        ("tests/test_marks.py", b"import unittest\nimport pytest\n" + CASE),
        ("tests/sums_test.py", b"from pytest import raises\n"),
    ],
)
def test_one_sign_of_pytest_is_enough(path: str, content: bytes) -> None:
    assert not uses({**PROJECT, path: content})


def test_a_project_without_test_cases_does_not_use_unittest() -> None:
    assert not uses({})
    assert not uses({"sums.py": CASE})
    assert not uses({"tests/test_mocks.py": b"from unittest import mock\n"})
    assert not uses({"tests/tests.py": b"from django.test import TestCase\nclass T(TestCase):\n    pass\n"})


def test_the_number_of_files_read_is_limited() -> None:
    files = {f"tests/test_{number:04}.py": CASE for number in range(2 * FILE_LIMIT)}
    read: list[str] = []

    def reading(path: str) -> bytes:
        read.append(path)
        return files[path]

    assert uses_only_unittest(files, reading)
    assert len(read) <= FILE_LIMIT
