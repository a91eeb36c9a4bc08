"""Which runners test a snapshot, by the settings and by its files."""

from __future__ import annotations

import pytest

from watchtest.core.model import Entry, EntryKind, Snapshot
from watchtest.runners.detect import RunnerDetector
from watchtest.runners.registry import RunnerDefaults
from watchtest.runners.runner import RunnerSpec

UNITTEST = b"import unittest\n\nclass TestIt(unittest.TestCase):\n    def test_it(self):\n        pass\n"


def snapshot(files: dict[str, bytes]) -> Snapshot:
    entries = {path: Entry(EntryKind.FILE, 0o644, len(content), str(hash(content))) for path, content in files.items()}
    return Snapshot("t", entries)


def chosen(files: dict[str, bytes], *given: RunnerSpec, is_for_pytest: bool = False) -> list[str]:
    choosing = RunnerDetector(given, lambda path, _entry: files[path], RunnerDefaults(("-x",) if is_for_pytest else ()))
    return [str(spec) for spec in choosing.specs(snapshot(files))]


def test_settings_for_pytest_are_not_lost_on_a_project_of_unittest() -> None:
    files = {"test_it.py": UNITTEST}
    assert chosen(files) == ["unittest"]
    assert chosen(files, is_for_pytest=True) == ["pytest"]
    assert chosen(files, RunnerSpec("unittest"), is_for_pytest=True) == ["unittest"], "the user has named it"


def test_what_is_named_is_all_there_is() -> None:
    assert chosen({"test_it.py": UNITTEST, "go.mod": b"module x"}, RunnerSpec("go", folder="a")) == ["go in a/"]


@pytest.mark.parametrize("path", ["conftest.py", "pyproject.toml"])
def test_a_file_that_decides_is_looked_at_again_when_it_changes(path: str) -> None:
    files = {"test_it.py": UNITTEST, "pyproject.toml": b"", "go.mod": b"module x", "a_test.go": b"package x"}
    choosing = RunnerDetector((), lambda name, _entry: files[name])
    assert [spec.kind for spec in choosing.specs(snapshot(files))] == ["unittest", "go"]
    files[path] = b"[tool.pytest.ini_options]\n"
    assert [spec.kind for spec in choosing.specs(snapshot(files))] == ["pytest", "go"]


def test_the_runners_are_created_anew_only_when_a_file_that_decides_changes() -> None:
    files = {"test_it.py": b"import pytest", "pyproject.toml": b""}
    detector, first, later = RunnerDetector((), lambda name, _entry: files[name]), snapshot(files), snapshot(files)
    runners = detector(first)
    assert detector(Snapshot("t", {**first.entries, "test_it.py": later.entries["test_it.py"]})) is runners
    assert detector(later) is not runners
