"""Detects which runners a workspace needs, from the names of its files and the contents of a few of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath
from types import MappingProxyType

from watchtest.core.impact_rules import CONFTEST, PYTEST_FILES, PYTEST_TABLES, SETTINGS
from watchtest.core.model import Entry, EntryKind, Snapshot
from watchtest.runners.project_tree import ProjectTree, in_folder
from watchtest.runners.registry import KINDS, AnyRunner, RunnerDefaults
from watchtest.runners.runner import RunnerSpec

PROJECT_LIMIT = 20
PYTHON_TEST = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$")
PYTEST_SIGNS = (*PYTEST_FILES, CONFTEST, f"tests/{CONFTEST}", f"test/{CONFTEST}")
DECISIVE = frozenset({*(kind.manifest for kind in KINDS.values()), *SETTINGS, CONFTEST})
"""The names of all files whose content decides about the runners."""


def detect(paths: Collection[str], read: Callable[[str], bytes]) -> tuple[RunnerSpec, ...]:
    """Return at least one runner, Python first. Projects without tests count only if there is nothing else."""
    python = python_runner(paths, read)
    tree = ProjectTree(paths, read, has_python_tests=python != "")
    found = [
        (
            in_folder(project.folder, kind.manifest),
            project.has_tests,
            RunnerSpec(name, f"{name}:{project.folder}" if project.folder else name, project.folder),
        )
        for name, kind in KINDS.items()
        for project in islice(kind.detect(tree), PROJECT_LIMIT)
    ]
    found = sorted(found, key=lambda row: (row[0].count("/"), row[0]))[:PROJECT_LIMIT]
    specs = [RunnerSpec(python)] if python else []
    specs += [spec for _, has_tests, spec in found if has_tests]
    return tuple(specs or [spec for _, _, spec in found] or [RunnerSpec("pytest")])


def python_runner(paths: Collection[str], read: Callable[[str], bytes]) -> str:
    """Return `pytest` if there are Python tests or pytest settings, `unittest` if only that is used, else ""."""
    has_settings = any(path in paths for path in PYTEST_SIGNS) or any(
        name in paths and table in read(name) for name, table in PYTEST_TABLES.items()
    )
    # The cheap checks come first: there may be a hundred thousand paths.
    has_tests = any("test" in path and path.endswith(".py") and PYTHON_TEST.search(path) for path in paths)
    if not has_settings and has_tests and uses_only_unittest(paths, read):
        return "unittest"
    return "pytest" if has_settings or has_tests else ""


FILE_LIMIT = 200
"""This many test files are read; they stand for all."""
BYTE_LIMIT = 256 * 1024
PYTHON_SETTINGS = re.compile(
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


def uses_only_unittest(paths: Iterable[str], read: Callable[[str], bytes]) -> bool:
    """Tell whether the tests are written for unittest and nothing mentions pytest.

    In doubt the answer is no, because pytest runs unittest's tests as well. `paths` are the files of the project, POSIX
    and relative. Reads the settings near the top and a limited number of test files.
    """
    files = sorted(paths)
    if any(PurePosixPath(path).name in (CONFTEST, *PYTEST_FILES) for path in files):
        return False
    settings = [path for path in files if path.count("/") <= 1 and PYTHON_SETTINGS.fullmatch(path)]
    if any(PYTEST.search(read(path)[:BYTE_LIMIT]) for path in settings[:FILE_LIMIT]):
        return False
    has_test_case = False
    for path in [path for path in files if TEST_FILE.fullmatch(PurePosixPath(path).name)][:FILE_LIMIT]:
        content = read(path)[:BYTE_LIMIT]
        if IMPORTS_PYTEST.search(content) or WRITTEN_FOR_PYTEST.search(content):
            return False
        has_test_case |= bool(IMPORTS_UNITTEST.search(content) and TEST_CASE.search(content))
    return has_test_case


class RunnerDetector:
    """Returns the runners for a snapshot: those given in the settings, or else the detected ones. It caches them."""

    def __init__(
        self, given: tuple[RunnerSpec, ...], read: Callable[[str, Entry], bytes], defaults: RunnerDefaults | None = None
    ) -> None:
        self._is_given = bool(given)
        self._read = read
        self._defaults = defaults or RunnerDefaults()
        # Options for pytest in the settings mean that it is wanted even where unittest would do.
        self._prefers_pytest = bool(self._defaults.args) or self._defaults.workers > 1
        self._entries: Mapping[str, Entry] = MappingProxyType({})
        self._create(given)

    def __call__(self, snapshot: Snapshot) -> tuple[AnyRunner, ...]:
        self._update(snapshot.entries)
        return self._runners

    def specs(self, snapshot: Snapshot) -> tuple[RunnerSpec, ...]:
        self._update(snapshot.entries)
        return self._specs

    def _create(self, specs: Iterable[RunnerSpec]) -> None:
        self._specs = tuple(sorted(specs, key=lambda spec: KINDS[spec.kind].rank))
        self._runners = tuple(KINDS[spec.kind].create(spec, self._defaults) for spec in self._specs)

    def _update(self, entries: Mapping[str, Entry]) -> None:
        if self._is_given:
            return
        if not self._specs or not self._is_up_to_date(entries):
            files = {path: entry for path, entry in entries.items() if entry.kind is EntryKind.FILE}
            found = detect(files, lambda path: self._read(path, files[path]))
            self._create(
                replace(spec, kind="pytest") if spec.kind == "unittest" and self._prefers_pytest else spec
                for spec in found
            )
        self._entries = entries

    def _is_up_to_date(self, entries: Mapping[str, Entry]) -> bool:
        """Avoid a detection at every save. Whether only unittest is used depends on the content of any test file."""
        if any(spec.kind == "unittest" for spec in self._specs) or entries.keys() != self._entries.keys():
            return False
        changed = (path for path, entry in entries.items() if self._entries[path] is not entry)
        return not any(path.rpartition("/")[2] in DECISIVE for path in changed)
