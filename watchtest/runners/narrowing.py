"""What a runner is asked when files have changed: which of its own tests can that affect? Values and words; asks nobody.

A runner answers with a selection of its own tests, which is a proof that the others need not run; in any doubt it raises
Untellable, and all of its tests run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from watchtest.core.model import Only
from watchtest.core.verdict import file_of
from watchtest.runners.base import Ended, Order
from watchtest.runners.untrusted import first_line, inside

NAMES_SHOWN = 3
TOP = "."
"""The workspace itself, where a folder is meant."""

Ask = Callable[[Order], Awaitable[Ended]]
"""Carries out an order in the box, at the tree that is to be tested."""
Rule = tuple[str, Callable[[str], bool], str]
"""The user's own: in words, which paths, and where the tests of these are."""


class Untellable(Exception):  # noqa: N818  no failure: an answer
    """It cannot be told which tests are affected, for this reason: so all of the runner's."""


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
