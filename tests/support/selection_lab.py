"""Selects tests without a box: records a project's tests in a separate process, changes files and asks what would run.

The recorder, the fingerprints, the rules and the selector are the real ones; only the box between them is missing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from watchtest.agent.code.fingerprint_job import PROGRAM
from watchtest.agent.in_pytest import pytest_command
from watchtest.core.model import All, Entry, EntryKind, Selection, Snapshot
from watchtest.core.recorded import FileFingerprint
from watchtest.core.verdict import file_of
from watchtest.runners.python import PytestReader
from watchtest.runners.runner import InvocationEnd
from watchtest.selection.recorded_rows import RecordingRows, parse_fingerprint
from watchtest.selection.selector import SelectionInput, Selector

RUN_LIMIT_S = 600.0
SKIPPED = frozenset({"__pycache__", ".git", ".pytest_cache", ".hypothesis", ".watchtest"})


@dataclass
class Ran:
    """The outcomes of one run by test id; a file that could not be collected is listed under its path."""

    outcomes: dict[str, str]
    output: str
    exit_code: int
    recordings: RecordingRows = field(repr=False)
    unended: tuple[str, ...] = ()
    """Tests that began and did not come to an end: they ended the session, and all that would have come after them."""


@dataclass
class Lab:
    """Records and selects tests of one project. `home` is a working folder outside the project."""

    root: Path
    home: Path
    python: str = sys.executable
    args: tuple[str, ...] = ()
    mode: str = "affected"
    limit_s: float = RUN_LIMIT_S
    selector: Selector = field(init=False)
    base: Snapshot | None = None
    known: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.selector = Selector(mode=self.mode)

    # -- running -----------------------------------------------------------------------------------

    def run(self, tests: Collection[str] | None = None, *, record: bool = False, **more: Any) -> Ran:
        """Do a cold run, started as the agent starts one."""
        options = {"python": self.python, "args": list(self.args), "order": [], "record": record, "first": []}
        options |= {"collects_all": False, "tests": None if tests is None else sorted(tests), "root": str(self.root)}
        argv = pytest_command.cold_argv({**options, **more}, str(self.home))
        rows_file, null = (
            os.open(self.home / "rows", os.O_RDWR | os.O_CREAT | os.O_TRUNC),
            os.open(os.devnull, os.O_RDWR),
        )
        env = {**os.environ, "WATCHTEST_RESULTS_FD": str(rows_file), "WATCHTEST_STACKS_FD": str(null)}
        env |= {"PYTHONDONTWRITEBYTECODE": "1"}  # an edit of the same size in the same second must be noticed
        try:
            done = subprocess.run(
                argv, cwd=self.root, env=env, pass_fds=(rows_file, null), timeout=self.limit_s, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", check=False,
            )  # fmt: skip
        finally:
            os.close(rows_file)
            os.close(null)
        reports, recordings = PytestReader(), RecordingRows()
        rows = [json.loads(line) for line in (self.home / "rows").read_text().splitlines()]
        reports.take(rows)
        recordings.take(rows)
        execution = reports.execution(InvocationEnd(done.returncode, output=done.stdout))
        outcomes = {test: result.outcome.value for test, result in execution.results.items()}
        outcomes |= {result.test: "error" for result in execution.collection_errors}
        begun, ended = ([row["test"] for row in rows if row["k"] == kind] for kind in ("start", "test"))
        unended = tuple(test for test in begun if test not in ended)
        return Ran(outcomes, done.stdout, done.returncode, recordings, unended)

    def record(self) -> Ran:
        """Run everything on the current tree and learn from it: later selections are about changes since then."""
        ran = self.run(record=True)
        self.base, self.known = self.snapshot(), ran.outcomes
        inputs = self.inputs(self.base)
        asyncio.run(self.learn(inputs, ran.recordings))
        return ran

    async def learn(self, inputs: SelectionInput, recordings: RecordingRows) -> None:
        """Take over what a run with these inputs recorded; its tree is already the base."""
        self.selector.begin(inputs)
        self.selector.end(inputs, recordings)
        await self.selector.settle(self.base)

    # -- selecting ---------------------------------------------------------------------------------

    def select(self) -> Selection:
        """Return what a watcher would run now; `selector.impacts` tells why."""
        return asyncio.run(self.selector.select(self.inputs(self.snapshot())))

    def inputs(self, snapshot: Snapshot) -> SelectionInput:
        red = frozenset(test for test, outcome in self.known.items() if outcome in ("failed", "error"))
        links = [path for path, entry in snapshot.entries.items() if entry.kind is EntryKind.SYMLINK]
        targets = {path: str((self.root / path).readlink()) for path in links}
        return SelectionInput(snapshot, "lab", self.base, frozenset(self.known), red, self._fetch, targets)

    async def _fetch(self, paths: Collection[str]) -> Mapping[str, FileFingerprint]:
        done = await asyncio.to_thread(
            subprocess.run,
            [self.python, "-I", "-c", PROGRAM, str(self.root)],
            input=json.dumps(list(paths)), text=True, capture_output=True, check=True, timeout=RUN_LIMIT_S,
        )  # fmt: skip
        rows = {row["path"]: row for row in map(json.loads, done.stdout.splitlines())}
        return {path: parse_fingerprint(rows.get(path)) for path in paths}

    def snapshot(self) -> Snapshot:
        entries = {}
        for folder, names, files in os.walk(self.root):
            names[:] = [name for name in names if name not in SKIPPED and not name.endswith(".egg-info")]
            for name in (*names, *files):
                path = Path(folder, name)
                if path.is_symlink():
                    target = os.fsencode(path.readlink())
                    entries[path.relative_to(self.root).as_posix()] = Entry(
                        EntryKind.SYMLINK, 0o777, len(target), hashlib.sha1(target).hexdigest()
                    )
                elif not path.is_dir() and not name.endswith(".pyc"):
                    content = path.read_bytes()
                    entries[path.relative_to(self.root).as_posix()] = Entry(
                        EntryKind.FILE, path.stat().st_mode & 0o777, len(content), hashlib.sha1(content).hexdigest()
                    )
        digest = hashlib.sha1(repr(sorted(entries.items())).encode()).hexdigest()
        return Snapshot(digest, entries)


def covers(selection: Selection, test: str) -> bool:
    """Whether this selection runs the test or, for a file that cannot be collected, whether it visits the file."""
    if isinstance(selection, All) or test in selection.tests or file_of(test) in selection.tests:
        return True
    if test == ".":
        return bool(selection.tests)
    return file_of(test) == test and (selection.collects_all or any(file_of(one) == test for one in selection.tests))


def missed(selection: Selection, before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the tests, including new ones, whose outcome has changed and that the selection leaves out.

    A test that no longer exists is missed only if neither it nor its file is selected.
    """
    changed = [test for test in before.keys() | after.keys() if before.get(test) != after.get(test)]
    return sorted(test for test in changed if not covers(selection, test))
