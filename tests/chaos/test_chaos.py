"""Random steps over fixed seeds: after each rest, everything equals what plain git and plain pytest say."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.main import run_seed

SEEDS, STEPS_PER_SEED = ("1", "2", "3", "4", "5"), "2000"


@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize(
    ("seed", "engine"),
    [
        (11, "local"),
        (12, "local"),
        pytest.param(13, "docker", marks=[pytest.mark.docker, pytest.mark.thorough]),
    ],
)
def test_a_hundred_random_steps_find_no_difference(tmp_path: Path, seed: int, engine: str) -> None:
    said: list[str] = []
    assert run_seed(seed, steps=100, engine=engine, folder=tmp_path, say=said.append) == 0, "\n".join(said)


@pytest.mark.thorough
@pytest.mark.docker
@pytest.mark.timeout(4 * 3600)
def test_ten_thousand_random_steps_over_five_seeds_find_no_difference(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).parent), "--seed", *SEEDS, "--steps", STEPS_PER_SEED]
    done = subprocess.run([*command, "--folder", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
