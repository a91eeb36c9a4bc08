"""The numbers that stand for words in the file. A number is never given to another word.

A result as columns. What comes out of a box may be anything: here it becomes what a database can hold.
"""

from __future__ import annotations

import os
from enum import IntEnum
from types import MappingProxyType

from watchtest.core.model import Outcome, Result, RunState
from watchtest.history.store.database import LARGEST_INTEGER

OUTCOME_CODES = MappingProxyType(
    {
        Outcome.PASSED: 1,
        Outcome.FAILED: 2,
        Outcome.ERROR: 3,
        Outcome.SKIPPED: 4,
        Outcome.XFAILED: 5,
        Outcome.XPASSED: 6,
    }
)
"""Results are by far the most that is kept: an outcome is one byte."""
OUTCOMES = MappingProxyType({code: outcome for outcome, code in OUTCOME_CODES.items()})
PASSED_CODE = OUTCOME_CODES[Outcome.PASSED]
RED_CODES = frozenset(code for outcome, code in OUTCOME_CODES.items() if outcome.is_red)
GREEN_CODES = frozenset({OUTCOME_CODES[Outcome.PASSED], OUTCOME_CODES[Outcome.XPASSED]})
"""It ran, and all was well. What was skipped, or had to fail, says neither."""

RED_STATES = frozenset({RunState.FAILED, RunState.ERROR, RunState.TIMED_OUT})
JUDGED_STATES = frozenset({RunState.PASSED, RunState.FAILED})
"""Runs in which every test had its warn: what they say of a test is evidence. In a run that was ended from outside, or
whose process died, a test may be red for that reason."""

IS_GATE_OR_PROBE = "(id LIKE '%-gate.%' OR id LIKE '%-probe.%')"
"""A condition on `runs`: those of a gate or a probe, beside the watcher's own."""


class AttemptKind(IntEnum):
    """Why a test was reported, or reported again, within one run. None of them makes it flaky: a check that is red
    confirms, one that is green says that the warm process was to blame."""

    WORD = 1
    """The run's own word."""
    CHECK = 2
    """Once more, in a fresh process, because a warm one could have been to blame."""
    BLAME = 3
    """Said by the end of the process: it crashed, left or hung in there."""


class Proof(IntEnum):
    """How it was seen that a test passes and fails on one tree in one environment."""

    RUNS = 1
    """Two runs disagree."""
    RERUN = 2
    """The runner itself repeated it until it passed."""
    REPEAT = 3
    """The very same warm run was repeated, and it passed."""


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
