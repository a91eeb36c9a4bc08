"""Tests that change what their box depends on are noticed; changes between two jobs are not their doing."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from watchtest.agent.vital_files import VitalFiles, files_below, loaded_files


@pytest.mark.parametrize(
    "harm",
    [
        lambda file: file.write_text("other"),
        lambda file: file.unlink(),
        lambda file: shutil.rmtree(file.parent),
        lambda file: file.replace(file.with_name("elsewhere")),
    ],
    ids=["overwritten", "deleted", "deleted with its folder", "moved"],
)
def test_a_file_that_changes_during_a_job_is_named(tmp_path: Path, harm: Callable[[Path], object]) -> None:
    file = tmp_path / "agent" / "main.py"
    file.parent.mkdir()
    file.write_text("pass")
    vital = VitalFiles([*files_below(str(tmp_path)), str(tmp_path / "never there")])
    vital.begin()
    assert vital.first_change() == ""
    harm(file)
    assert vital.first_change() == str(file)
    vital.begin()
    assert vital.first_change() == "", "between jobs, the user may change it"


def test_files_that_only_the_tests_have_loaded_are_watched_too(tmp_path: Path) -> None:
    file = tmp_path / "pluggy.py"
    file.touch()
    found = file.stat()
    vital = VitalFiles([])
    vital.begin()
    vital.note_loaded({str(file): [found.st_ino, found.st_size, found.st_mtime_ns], "/nowhere": None})
    file.write_text("raise SystemExit(0)")
    assert vital.first_change() == str(file)


@pytest.mark.parametrize("nonsense", [None, 3, ["a"], {"a": 3}, {"a": ["x"]}])
def test_a_row_that_a_test_has_forged_does_not_end_the_agent(nonsense: object) -> None:
    vital = VitalFiles([])
    vital.begin()
    vital.note_loaded(nonsense)
    vital.first_change()


def test_pytest_and_python_are_among_the_loaded_files() -> None:
    assert {sys.executable, pytest.__file__} <= loaded_files().keys()


def test_limits_that_a_test_imposes_on_the_agent_are_noticed() -> None:
    script = (
        "import resource\nfrom watchtest.agent.vital_files import VitalFiles\n"
        "vital = VitalFiles([])\nvital.begin()\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\nprint(vital.first_change())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8", timeout=30, check=True)
    assert "limits" in done.stdout
    assert resource.getrlimit(resource.RLIMIT_NOFILE) != (64, 64)
