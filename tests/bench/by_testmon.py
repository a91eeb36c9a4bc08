"""Runs pytest-testmon on the same changes, each time from a copy of one recorded database."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

PLUGIN = "reporting_plugin"
OFF = ("-p", "no:testmon")


@dataclass(frozen=True)
class Chosen:
    """The tests that testmon ran or could not collect."""

    tests: frozenset[str]
    chosen_s: float
    """From the start of pytest to the end of its collection: it chooses while it collects."""


@dataclass
class Testmon:
    root: Path
    home: Path
    python: str
    args: tuple[str, ...]
    limit_s: float

    def __post_init__(self) -> None:
        plugins = self.home / "plugins"
        plugins.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(__file__).with_name(f"{PLUGIN}.py"), plugins)

    def record(self) -> Chosen:
        """Run and record every test."""
        (self.home / "base").unlink(missing_ok=True)
        chosen = self._run(self.home / "base")
        if not (self.home / "base").exists():
            raise SystemExit("pytest-testmon recorded nothing")
        return chosen

    def select(self) -> Chosen:
        database = self.home / "copy"
        for leftover in self.home.glob("copy*"):
            leftover.unlink()
        shutil.copy(self.home / "base", database)
        return self._run(database)

    def _run(self, database: Path) -> Chosen:
        report = self.home / "report.json"
        report.unlink(missing_ok=True)
        env = {**os.environ, "TESTMON_DATAFILE": str(database), "BENCH_REPORT": str(report)}
        env |= {"PYTHONPATH": str(self.home / "plugins"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [self.python, "-m", "pytest", "-q", "-p", PLUGIN, "--testmon", *self.args]
        subprocess.run(
            command, cwd=self.root, env=env, timeout=self.limit_s, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        if not report.exists():  # it stopped early: a conftest that cannot be imported, which is visible anyway
            return Chosen(frozenset({"."}), 0.0)
        said = json.loads(report.read_text())
        return Chosen(frozenset(said["outcomes"]), said["chosen_s"])
