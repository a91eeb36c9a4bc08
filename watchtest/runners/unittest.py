"""Describes a run of unittest, and detects projects that use nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from watchtest.core.impact_rules import CONFTEST, PYTEST_FILES
from watchtest.runners.pytest import PythonRunner

FILE_LIMIT = 200
"""This many test files are read; they stand for all."""
BYTE_LIMIT = 256 * 1024
SETTINGS = re.compile(
    r"(?:.*/)?(?:pyproject\.toml|setup\.(?:cfg|py)|tox\.ini|noxfile\.py|Pipfile|environment\.ya?ml"
    r"|[^/]*requirements[^/]*\.(?:txt|in)|requirements/[^/]*\.(?:txt|in))"
)
TEST_FILE = re.compile(r"(?:test[^/]*|[^/]*_tests?)\.py")
PYTEST = re.compile(rb"(?m)^[^#\n]*\bpytest\b")
IMPORTS_PYTEST = re.compile(rb"(?m)^\s*(?:import|from)\s+_?pytest\b")
WRITTEN_FOR_PYTEST = re.compile(rb"(?m)^(?:(?:async\s+)?def\s+test|class\s+Test\w*\s*(?:\(\s*(?:object)?\s*\))?\s*:)")
IMPORTS_UNITTEST = re.compile(
    rb"(?m)^\s*(?:import\s+(?:[\w., ]*\b)?unittest\b(?!\.mock)|from\s+unittest(?:\.case)?\s+import)"
)
TEST_CASE = re.compile(rb"\b(?:IsolatedAsyncio)?TestCase\b")


@dataclass(frozen=True, slots=True)
class UnittestRunner(PythonRunner):
    """The agent's loader does what `python -m unittest discover` does."""

    name: str = "unittest"


def uses_only_unittest(paths: Iterable[str], read: Callable[[str], bytes]) -> bool:
    """Tell whether the tests are written for unittest and nothing mentions pytest.

    In doubt the answer is no, because pytest runs unittest's tests as well. `paths` are the files of the project, POSIX
    and relative. Reads the settings near the top and a limited number of test files.
    """
    files = sorted(paths)
    if any(PurePosixPath(path).name in (CONFTEST, *PYTEST_FILES) for path in files):
        return False
    settings = [path for path in files if path.count("/") <= 1 and SETTINGS.fullmatch(path)]
    if any(PYTEST.search(read(path)[:BYTE_LIMIT]) for path in settings[:FILE_LIMIT]):
        return False
    has_test_case = False
    for path in [path for path in files if TEST_FILE.fullmatch(PurePosixPath(path).name)][:FILE_LIMIT]:
        content = read(path)[:BYTE_LIMIT]
        if IMPORTS_PYTEST.search(content) or WRITTEN_FOR_PYTEST.search(content):
            return False
        has_test_case |= bool(IMPORTS_UNITTEST.search(content) and TEST_CASE.search(content))
    return has_test_case
