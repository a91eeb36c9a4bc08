"""Runs the same project cold and warm in a box under test, for comparison."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.box_bench import Bench, Tree
from watchtest.boxes.local.local_provider import LocalProvider, LocalSpec
from watchtest.boxes.protocols import JobLimits, JobResult, JobSpec, PytestCommand

READY_LIMIT_S = 40.0
GETTING_READY = "the warm process is not ready yet"
PARKED_AFTER_S = 1.0
"""After this time the sessions started ahead for the next runs are parked."""

MARKED = """
import os
own, pid = set(), os.getpid()
while pid > 1:
    own.add(pid)
    pid = int(open('/proc/%d/stat' % pid).read().rpartition(')')[2].split()[1])
for name in os.listdir('/proc'):
    if name.isdigit() and int(name) not in own:
        try:
            if b'WATCHTEST_JOB={home}' in open('/proc/%s/environ' % name, 'rb').read().split(b'\\0'):
                print(name, open('/proc/%s/cmdline' % name).read().replace(chr(0), ' ')[-60:])
        except OSError:
            pass
"""


@dataclass
class Seen:
    """How one run ended, and every row that it sent."""

    end: JobResult
    rows: list[dict[str, Any]]

    @property
    def outcomes(self) -> dict[str, str]:
        return {row["test"]: row["outcome"] for row in self.rows if row["k"] == "test"}

    @property
    def verdicts(self) -> tuple[int | None, dict[str, str], list[str]]:
        """Return what a cold and a warm run of the same tree must have in common."""
        errors = sorted(row["test"] for row in self.rows if row["k"] == "collection_error")
        return self.end.exit_code, self.outcomes, errors

    def failure(self, test: str) -> str:
        return "".join(row["failure"]["message"] for row in self.rows if row.get("test") == test and "failure" in row)


@dataclass
class WarmBench:
    bench: Bench
    python: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    path_first: tuple[str, ...] = ()
    record: bool = False
    runs: int = 0
    """How many there have been."""
    limits: JobLimits = field(default_factory=lambda: JobLimits(60, 60, 0.5))

    def put(self, content: dict[str, str]) -> None:
        self.bench.sync(Tree({path: text.encode() for path, text in content.items()}))

    def start(self, is_warm: bool, *tests: str) -> Seen:
        rows: list[dict[str, Any]] = []
        self.runs += 1
        session = self.bench.open()
        command = PytestCommand(self.python, self.args, tests or None, is_warm=is_warm, record=self.record)
        job = JobSpec(command, self.limits, self.env, self.path_first, requires=session.generation)
        return Seen(self.bench.do(session.run(job, rows.extend, lambda _text: None)), rows)

    def install(self, **modules: str) -> None:
        """Install modules outside the project, where this box's Python finds them."""
        folder = f"{self.bench.provider.home}/third-party"
        self.env["PYTHONPATH"] = folder
        for name, text in modules.items():
            self.bench.said(f"mkdir -p {folder} && cat > {folder}/{name}.py <<'END'\n{text}\nEND")

    def cold(self, *tests: str) -> Seen:
        seen = self.start(False, *tests)
        assert not seen.end.is_warm
        return seen

    def warm(self, *tests: str, rest_s: float = 0.0) -> Seen:
        """Run until one run is warm, and return it. Earlier runs are cold while the warm process is getting ready."""
        deadline = time.monotonic() + READY_LIMIT_S
        while time.monotonic() < deadline:
            time.sleep(rest_s)
            seen = self.start(True, *tests)
            if seen.end.is_warm:
                return seen
            if seen.end.cold_because != GETTING_READY:
                pytest.fail(f"not warm: {seen.end.cold_because}\n{seen.end.output}")
            time.sleep(0.2)
        pytest.fail(f"no warm process within {READY_LIMIT_S:g} s")

    def left(self) -> list[str]:
        """List the box's processes marked as part of a run, except the one that lists them and its ancestors."""
        home = self.bench.provider.home
        found = self.bench.said(f"{self.python} - <<'END'\n{MARKED.format(home=home)}\nEND")
        return found.splitlines()

    def alike(self, *tests: str) -> Seen:
        """Require the same verdicts from a cold run and every kind of warm run. Return the last one."""
        cold = self.cold(*tests)
        for rest_s in (0.0, 0.0, PARKED_AFTER_S, PARKED_AFTER_S):
            seen = self.warm(*tests, rest_s=rest_s)
            assert seen.verdicts == cold.verdicts, f"warm:\n{seen.end.output}\n\ncold:\n{cold.end.output}"
        return seen


@contextmanager
def local_warm_bench(folder: Path, python: str = sys.executable) -> Iterator[WarmBench]:
    """Yield a warm bench on the local box, for behaviour of the agent that is the same in every kind of box."""
    spec = LocalSpec(folder / "box", str(folder / "workspace"), python=sys.executable, sandbox="off")
    bench = Bench(LocalProvider(spec, os.environ), sys.executable)
    try:
        yield WarmBench(bench, python)
    finally:
        bench.close()
