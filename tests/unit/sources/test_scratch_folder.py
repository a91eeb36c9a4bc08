"""Scratch folders of killed processes are removed by the next one, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from watchtest.sources.scratch_folder import make_scratch_folder

MAKE_AND_WAIT = """
import sys
from watchtest.sources.scratch_folder import make_scratch_folder
print(make_scratch_folder(), flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_left_behind_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "watchtest-git-1-of_a_living_one").mkdir()
    (tmp_path / "watchtest-git-notes").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", MAKE_AND_WAIT],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        first = make_scratch_folder()
        assert left.is_dir(), "its process is alive"
        other.kill()
    second = make_scratch_folder()
    assert not left.exists()
    kept = {"watchtest-git-1-of_a_living_one", "watchtest-git-notes", first.name, second.name}
    assert {path.name for path in tmp_path.iterdir()} == kept
