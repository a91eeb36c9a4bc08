"""A result as columns. What comes out of a box may be anything: here it becomes what a database can hold."""

from __future__ import annotations

import os

from watchtest.core.model import Result
from watchtest.history.database import LARGEST_INTEGER
from watchtest.history.schema import OUTCOME_CODES

TEXT_LIMIT = 64 * 1024

Value = str | int | float | bytes | None


def result_values(run: int, result: Result) -> dict[str, Value]:
    return {
        "run": run,
        "test": text(result.test),
        "file": text(result.test.partition("::")[0]),
        "outcome": OUTCOME_CODES[result.outcome],
        "duration_us": _microseconds(result.duration_s),
    }


def failure_values(run: int, result: Result) -> dict[str, Value]:
    failure = result.failure
    assert failure is not None
    where, crash = failure.where, failure.crash
    return {
        "run": run,
        "test": text(result.test),
        "kind": text(failure.kind, TEXT_LIMIT),
        "message": text(failure.message, TEXT_LIMIT),
        "failure_file": None if where is None else text(where.file),
        "line": None if where is None else _integer(where.line),
        "column": None if failure.column is None else _integer(failure.column),
        "source_line": None if failure.source_line is None else text(failure.source_line, TEXT_LIMIT),
        "crash_file": None if crash is None else text(crash.file),
        "crash_line": None if crash is None else _integer(crash.line),
        "text": text(failure.text, TEXT_LIMIT),
        "output": text(failure.output, TEXT_LIMIT),
    }


def text(said: str, limit: int | None = None) -> str:
    """Valid UTF-8, and of a long text its end: that is where the reason stands."""
    if limit is not None and len(said) > limit:
        said = f"[{len(said) - limit} characters before this are not kept]\n{said[-limit:]}"
    return said.encode("utf-8", "backslashreplace").decode("utf-8")


def _integer(number: int) -> int:
    return max(0, min(number, LARGEST_INTEGER))


def _microseconds(seconds: float) -> int:
    # `not >=` takes NaN along.
    return 0 if not seconds >= 0 else _integer(round(min(seconds, 1e9) * 1_000_000))


def workspace_key(workspace: str) -> str:
    """A workspace under the one name that all ways to it lead to."""
    return text(os.path.realpath(workspace))
