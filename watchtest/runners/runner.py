"""What a test tool is to the pipeline: commands for the box, and somebody who reads what they say. Starts nothing.

    runner.orders(tests)         the commands that run these tests, one after the other; None is all tests
    runner.reports(order, root)  gathers the words of one of them: rows as they come, the rest at its end
    runner.narrow(change, ask)   which of its tests a change can affect, by commands that run no test

Ids of tests are `<file or package, relative to the workspace>::<name>`; a file or package alone is one that could not
be built, imported or collected.

How a runner answers the question which of its tests a change can affect. Words and paths; asks nobody.

The answer is a proof that the others need not run; in any doubt it is Untellable, and all of its tests run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from watchtest.core.model import Execution, Only, Result
from watchtest.core.verdict import file_of
from watchtest.runners.untrusted import first_line, inside

REPORT = "{watchtest-report}"
"""Stands in an argv for the path of a file that the command writes and that comes back as `Ended.report`."""


@dataclass(frozen=True, slots=True)
class RunnerSpec:
    """A runner as the settings or the project's files name it."""

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
class Order:
    """One command of a runner in the box."""

    argv: tuple[str, ...]
    folder: str = ""
    """Where it runs, relative to the workspace."""
    env: Mapping[str, str] = field(default_factory=dict)
    has_rows: bool = False
    """JSON objects, a line each, on stdout go to `Reports.take`; all other lines are output."""
    tests: frozenset[str] | None = None
    """What it was asked for; it may run more. None: all tests."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How the command of an order ended, as the box says."""

    exit_code: int | None
    stopped: str | None = None
    reason: str = ""
    output: str = ""
    """stderr and what was no row, its head and tail."""
    stacks: str = ""
    duration_s: float = 0.0
    current: str = ""
    report: bytes | None = None


class Reports(Protocol):
    """Gathers what one order says. All of it came from the box: sizes are bounded, shapes checked."""

    def take(self, rows: list[dict[str, Any]]) -> tuple[frozenset[str], tuple[Result, ...]]:
        """The tests newly promised and the results newly there."""

    def execution(self, end: Ended) -> Execution:
        """All of it. The exit code is made plain: 0 well, 1 tests failed, 5 no tests, all else is an error.

        Raises RunnerError when the tool is not in the box.
        """


Ask = Callable[[Order], Awaitable[Ended]]
"""Carries out an order in the box, at the tree that is to be tested."""
Rule = tuple[str, Callable[[str], bool], str]
"""The user's own: in words, which paths, and where the tests of these are."""


@dataclass(frozen=True, slots=True)
class Change:
    """Paths relative to the workspace, and what is known of the tests of the runner that is asked."""

    changed: frozenset[str]
    new: frozenset[str]
    gone: frozenset[str]
    known: frozenset[str]
    """Ids of its tests, of files and packages that could not be built or collected, too."""
    root: str
    """Where the workspace lies in the box."""
    rules: tuple[Rule, ...] = ()

    @property
    def paths(self) -> list[str]:
        return sorted(self.changed | self.new | self.gone)

    @property
    def known_files(self) -> frozenset[str]:
        return frozenset(map(file_of, self.known))


class Runner(Protocol):
    """A test tool at one place of the workspace."""

    @property
    def name(self) -> str: ...

    def orders(self, tests: tuple[str, ...] | None) -> tuple[Order, ...]:
        """The commands for these tests, which are its own; at least for these, never for fewer."""

    def reports(self, order: Order, root: str) -> Reports:
        """`root`: where the workspace lies in the box, as the tools there name it."""

    def claims(self, test: str) -> bool:
        """Whether this id is one of its own."""

    async def narrow(self, change: Change, ask: Ask) -> Only:
        """Which of its tests a change can affect, for sure: ids of tests, or of files or packages that hold them.

        Raises Untellable when it cannot tell, and then all of them run.
        """


NAMES_SHOWN = 3
TOP = "."
"""The workspace itself, where a folder is meant."""


class Untellable(Exception):
    """It cannot be told which tests are affected, for this reason: so all of the runner's."""


def proof(tests: Iterable[str], reasons: Iterable[str], change: Change) -> Only:
    """These tests, files or packages, and no others of this runner."""
    because = in_words(reasons) or f"no test depends on {named(change.paths)}"
    return Only(tuple(sorted(set(tests))), because, is_proof=True)


def told(end: Ended, tool: str) -> bytes:
    """What a tool wrote where REPORT pointed to. Raises Untellable if it did not end well."""
    if end.stopped is not None or end.exit_code != 0 or end.report is None:
        said = first_line(end.output) or end.reason or f"exit code {end.exit_code}"
        raise Untellable(f"{tool} does not tell what depends on what: {said[:200]}")
    return end.report


def folder_in(root: str, path: str) -> str | None:
    """A folder of the box as the workspace knows it; None if it lies elsewhere."""
    return TOP if path.rstrip("/") == root.rstrip("/") else inside(path, root, "")


def is_below(path: str, folder: str) -> bool:
    return folder in ("", TOP) or path == folder or path.startswith(folder + "/")


def in_words(reasons: Iterable[str]) -> str:
    """In one line, each once."""
    words = list(dict.fromkeys(reasons))
    more = f"; and {len(words) - NAMES_SHOWN} more" if len(words) > NAMES_SHOWN else ""
    return "; ".join(words[:NAMES_SHOWN]) + more


def named(paths: list[str]) -> str:
    more = f" and {len(paths) - NAMES_SHOWN} more" if len(paths) > NAMES_SHOWN else ""
    return ", ".join(paths[:NAMES_SHOWN]) + more
