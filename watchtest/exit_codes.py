"""What a shell hears of the end of a run."""

from __future__ import annotations

from collections.abc import Mapping

from watchtest.core.model import RunState

TIMED_OUT = 124
EXIT_CODES: Mapping[RunState, int] = {
    RunState.PASSED: 0,
    RunState.FAILED: 1,
    RunState.ERROR: 1,
    RunState.NO_TESTS: 5,
    RunState.TIMED_OUT: TIMED_OUT,
    RunState.CANCELLED: 130,
    RunState.KILLED: 130,
    RunState.SUPERSEDED: 130,
    RunState.BROKEN: 4,
}
"""Of every end a run can have."""
