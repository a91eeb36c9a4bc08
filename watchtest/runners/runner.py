"""What every runner offers to the pipeline: commands for the box, and readers of their reports. Starts nothing itself.

    runner.invocations(tests)        the commands that run these tests, one after the other; None means all tests
    runner.reader(invocation, root)  reads the report of one of them: rows as they arrive, the rest at its end
    runner.narrow(change, execute)   which of its tests a change can affect, found by commands that run no test

The id of a test is `<file or package, relative to the workspace>::<name>`; a file or package alone stands for one that
could not be built, imported or collected.

`narrow` proves that all other tests need not run. In any doubt it raises Undecidable, and all tests of the runner run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from watchtest.core.model import Execution, Only, Result
from watchtest.core.text import join_reasons, names
from watchtest.core.verdict import file_of
from watchtest.runners.untrusted import first_line, inside

REPORT = "{watchtest-report}"
"""In an argv, stands for the path of a file that the command writes. Its content becomes `InvocationEnd.report`."""


@dataclass(frozen=True, slots=True)
class RunnerSpec:
    """A runner as the settings or the project's files specify it."""

    kind: str
    name: str = ""
    """Empty: the kind is its name."""
    folder: str = ""
    args: tuple[str, ...] = ()
    command: str | tuple[str, ...] = ()
    junit: str = ""
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return self.name or self.kind

    def __str__(self) -> str:
        name = f"{self.name} ({self.kind})" if self.name and self.name != self.kind else self.kind
        return f"{name} in {self.folder}/" if self.folder else name


@dataclass(frozen=True, slots=True)
class Invocation:
    """One command of a runner in the box."""

    argv: tuple[str, ...]
    folder: str = ""
    """The working directory, relative to the workspace."""
    env: Mapping[str, str] = field(default_factory=dict)
    has_rows: bool = False
    """Lines of stdout that are JSON objects go to `ReportReader.take`; all other lines are output."""
    tests: frozenset[str] | None = None
    """The tests requested; it may run more. None means all tests."""


@dataclass(frozen=True, slots=True)
class InvocationEnd:
    """How an invocation ended, as reported by the box."""

    exit_code: int | None
    stopped: str | None = None
    reason: str = ""
    output: str = ""
    """The beginning and end of stderr and of the lines of stdout that are not rows."""
    stacks: str = ""
    duration_s: float = 0.0
    current: str = ""
    report: bytes | None = None


class ReportReader(Protocol):
    """Reads what one invocation reports. The data comes from the box: sizes are bounded and shapes checked."""

    def take(self, rows: list[dict[str, Any]]) -> tuple[frozenset[str], tuple[Result, ...]]:
        """Read rows. Returns the tests newly promised and the new results."""

    def execution(self, end: InvocationEnd) -> Execution:
        """Return everything that was read. Exit codes are normalized: 0 passed, 1 failed, 5 no tests, else an error.

        Raises RunnerError if the tool is not in the box.
        """


Execute = Callable[[Invocation], Awaitable[InvocationEnd]]
"""Runs an invocation in the box, which is at the tree to be tested."""
Rule = tuple[str, Callable[[str], bool], str]
"""A rule of the user: its text, a predicate for paths, and where the tests for these paths are."""


@dataclass(frozen=True, slots=True)
class Change:
    """What changed in the workspace, as paths relative to it, and what is known about the tests of one runner."""

    changed: frozenset[str]
    new: frozenset[str]
    removed: frozenset[str]
    known: frozenset[str]
    """Ids of the runner's tests, and of files and packages that could not be built or collected."""
    root: str
    """The path of the workspace in the box."""
    rules: tuple[Rule, ...] = ()

    @property
    def paths(self) -> list[str]:
        return sorted(self.changed | self.new | self.removed)

    @property
    def known_files(self) -> frozenset[str]:
        return frozenset(map(file_of, self.known))


@dataclass(frozen=True, slots=True)
class ToolRunner:
    """The base of all runners: a test tool in one folder of the workspace."""

    name: str = ""
    folder: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


class Runner(Protocol):
    """A runner whose commands the box runs as they are; Python's tools are started by the agent."""

    @property
    def name(self) -> str: ...

    def invocations(self, tests: tuple[str, ...] | None) -> tuple[Invocation, ...]:
        """Return commands that run at least these tests, all of which are its own."""

    def reader(self, invocation: Invocation, root: str) -> ReportReader:
        """Return a reader for one invocation. `root` is the path of the workspace in the box."""

    def claims(self, test: str) -> bool:
        """Tell whether a test id is one of its own."""

    async def narrow(self, change: Change, execute: Execute) -> Only:
        """Return the tests that a change can affect: ids of tests, or of files or packages that contain them.

        Raises Undecidable if that cannot be decided.
        """


FILTER_LIMIT = 100_000
"""The longest test filter, in characters, that is passed on a command line."""
TOP = "."
"""The workspace itself, as a folder."""


class Undecidable(Exception):
    """The affected tests cannot be determined, for this reason, so all tests of the runner have to run."""


def proof(tests: Iterable[str], reasons: Iterable[str], change: Change) -> Only:
    """Return a selection of these tests, files or packages, and no others of this runner."""
    because = join_reasons(reasons) or f"no test depends on {names(change.paths)}"
    return Only(tuple(sorted(set(tests))), because, is_proof=True)


def report_of(end: InvocationEnd, tool: str) -> bytes:
    """Return what a tool wrote to the path of REPORT. Raises Undecidable if the tool failed."""
    if end.stopped is not None or end.exit_code != 0 or end.report is None:
        message = first_line(end.output) or end.reason or f"exit code {end.exit_code}"
        raise Undecidable(f"{tool} failed to list dependencies: {message[:200]}")
    return end.report


def workspace_folder_of(root: str, path: str) -> str | None:
    """Return a folder of the box relative to the workspace, or None if it is outside."""
    return TOP if path.rstrip("/") == root.rstrip("/") else inside(path, root, "")


def is_below(path: str, folder: str) -> bool:
    return folder in ("", TOP) or path == folder or path.startswith(folder + "/")
