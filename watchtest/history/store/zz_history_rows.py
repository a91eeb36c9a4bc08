"""A result as columns. What comes out of a box may be anything: here it becomes what a database can hold."""

from __future__ import annotations

import os

from watchtest.core.model import Result
from watchtest.history.store.columns import OUTCOME_CODES, AttemptKind
from watchtest.history.store.database import LARGEST_INTEGER

TEXT_LIMIT = 64 * 1024

Value = str | int | float | bytes | None


def result_values(run: int, result: Result, kind: AttemptKind = AttemptKind.WORD) -> dict[str, Value]:
    return {
        "run": run,
        "kind": int(kind),
        "test": text(result.test),
        "file": text(result.test.partition("::")[0]),
        "outcome": OUTCOME_CODES[result.outcome],
        "duration_us": _microseconds(result.duration_s),
    }


def text(said: str, limit: int | None = None) -> str:
    """Valid UTF-8, and of a long text its end: that is where the reason stands."""
    if limit is not None and len(said) > limit:
        said = f"[{len(said) - limit} characters before this are not kept]\n{said[-limit:]}"
    return said.encode("utf-8", "backslashreplace").decode("utf-8")


def integer(number: int) -> int:
    """One that a database and a reader can hold."""
    return max(0, min(number, LARGEST_INTEGER))


def _microseconds(seconds: float) -> int:
    # `not >=` takes NaN along.
    return 0 if not seconds >= 0 else integer(round(min(seconds, 1e9) * 1_000_000))


def workspace_key(workspace: str) -> str:
    """A workspace under the one name that all ways to it lead to."""
    return text(os.path.realpath(workspace))
