"""Runs the invocations of a runner on this machine, and separates rows, output and report as a box does."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from watchtest.core.model import Execution
from watchtest.runners.merge import merge
from watchtest.runners.runner import REPORT, Execute, Invocation, InvocationEnd, ReportReader, Runner

PATIENCE_S = 90


def carry_out(runner: Runner, workspace: Path, tests: tuple[str, ...] | None = None) -> Execution:
    """Run all invocations for these tests in sequence and merge their executions."""
    invocations = runner.invocations(tests)
    return merge([obey(invocation, runner.reader(invocation, str(workspace)), workspace) for invocation in invocations])


def asking(workspace: Path) -> Execute:
    """Return a function that runs the queries of a runner."""

    async def ask(invocation: Invocation) -> InvocationEnd:
        done, report, duration_s = _carried_out(invocation, workspace)
        code = done.returncode if done.returncode >= 0 else None
        return InvocationEnd(code, output=(done.stdout + done.stderr).decode(), duration_s=duration_s, report=report)

    return ask


def obey(invocation: Invocation, reports: ReportReader, workspace: Path) -> Execution:
    done, written, duration_s = _carried_out(invocation, workspace)
    lines = done.stdout.decode(errors="replace").splitlines(keepends=True)
    rows = {number: row for number, line in enumerate(lines) if invocation.has_rows and (row := _row(line)) is not None}
    known: set[str] = set()
    for row in rows.values():
        promised, results = reports.take([row])
        assert known.isdisjoint(promised), "a test is newly promised only once"
        known |= promised
        assert {result.test for result in results} <= known, "a result comes after its promise"
    output = "".join(line for number, line in enumerate(lines) if number not in rows) + done.stderr.decode()
    code = done.returncode if done.returncode >= 0 else None
    return reports.execution(InvocationEnd(code, output=output, duration_s=duration_s, report=written))


def _carried_out(
    invocation: Invocation, workspace: Path
) -> tuple[subprocess.CompletedProcess[bytes], bytes | None, float]:
    """Return how the invocation ended, what it wrote to the path of REPORT, and how long it took."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report")
        done = subprocess.run(
            [word.replace(REPORT, str(report)) for word in invocation.argv],
            cwd=workspace / invocation.folder,
            env={**os.environ, "PWD": str(workspace / invocation.folder), **invocation.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        written = report.read_bytes() if report.exists() else None
    return done, written, time.monotonic() - began


def _row(line: str) -> dict[str, object] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
