"""How values are stored in columns: codes for enumerations, and text and numbers that SQLite can hold.

Codes are never reused for another value. Results come from a box and may contain anything.
"""

from __future__ import annotations

import os
from enum import IntEnum
from types import MappingProxyType

from watchtest.core.model import Outcome, RunState
from watchtest.history.store.database import LARGEST_INTEGER

OUTCOME_CODES = MappingProxyType(
    {Outcome.PASSED: 1, Outcome.FAILED: 2, Outcome.ERROR: 3, Outcome.SKIPPED: 4, Outcome.XFAILED: 5, Outcome.XPASSED: 6}
)
"""Results take most of the space, so an outcome is one byte."""
OUTCOMES = MappingProxyType({code: outcome for outcome, code in OUTCOME_CODES.items()})
PASSED_CODE = OUTCOME_CODES[Outcome.PASSED]
RED_CODES = frozenset(code for outcome, code in OUTCOME_CODES.items() if outcome.is_red)
GREEN_CODES = frozenset({OUTCOME_CODES[Outcome.PASSED], OUTCOME_CODES[Outcome.XPASSED]})
"""The test ran and passed. Skipped and expected failures are neither red nor green."""

RED_STATES = frozenset({RunState.FAILED, RunState.ERROR, RunState.TIMED_OUT})
JUDGED_STATES = frozenset({RunState.PASSED, RunState.FAILED})
"""Runs that finished normally, so that their results are evidence. In a run that was stopped, or whose process died, a
test may be red for that reason alone."""
JUDGED_SQL = ", ".join(f"'{state.value}'" for state in sorted(JUDGED_STATES))

IS_GATE_OR_PROBE = "(id LIKE '%-gate.%' OR id LIKE '%-probe.%')"
"""A condition on `runs`: those of `watchtest gate` or `history flaky --probe`, not of the watcher."""


class AttemptKind(IntEnum):
    """Why a test was reported, or reported again, within one run.

    None of them makes a test flaky: a red check confirms the failure, a green one shows that the warm process was at
    fault.
    """

    WORD = 1
    """The result that the run reported."""
    CHECK = 2
    """A repetition in a fresh process, because the warm process could have caused the failure."""
    BLAME = 3
    """Derived from how the process ended: it crashed, exited or hung in this test."""


class Proof(IntEnum):
    """How we know that a test both passed and failed on one tree in one environment."""

    RUNS = 1
    """Two runs disagree."""
    RERUN = 2
    """The runner repeated it until it passed."""
    REPEAT = 3
    """The same warm run was repeated, and it passed."""


Value = str | int | float | bytes | None


def storable_text(text: str, limit: int | None = None) -> str:
    """Return `text` as valid UTF-8. A text above the limit loses its beginning, as the end has the reason."""
    if limit is not None and len(text) > limit:
        text = f"[{len(text) - limit} characters before this were dropped]\n{text[-limit:]}"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def storable_integer(number: int) -> int:
    """Return the number, limited to what a column can hold and a reader expects."""
    return max(0, min(number, LARGEST_INTEGER))


def storable_microseconds(seconds: float) -> int:
    # `not >=` is also true for NaN.
    return 0 if not seconds >= 0 else storable_integer(round(min(seconds, 1e9) * 1_000_000))


def workspace_key(workspace: str) -> str:
    """Return the path of a workspace with all links resolved, so that every path to it gives the same key."""
    return storable_text(os.path.realpath(workspace))
