"""The numbers that stand for words in the file. A number is never given to another word."""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType

from watchtest.core.model import Outcome, RunState

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
JUDGED = frozenset({RunState.PASSED, RunState.FAILED})
"""Runs in which every test had its say: what they say of a test is evidence. In a run that was ended from outside, or
whose process died, a test may be red for that reason."""

BESIDE = "(id LIKE '%-gate.%' OR id LIKE '%-probe.%')"
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
