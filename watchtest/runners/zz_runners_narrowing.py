"""How a runner answers the question which of its tests a change can affect. Words and paths; asks nobody.

The answer is a proof that the others need not run; in any doubt it is Untellable, and all of its tests run.
"""

from __future__ import annotations

from collections.abc import Iterable

from watchtest.core.model import Only
from watchtest.runners.runner import Change, Ended
from watchtest.runners.untrusted import first_line, inside

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
