"""The exit codes of watchtest. Imports nothing, so that `watchtest status --line` stays fast."""

from __future__ import annotations

OK = 0
RED = 1
USAGE = 2
"""Wrong arguments, settings or workspace."""
BUG = 3
BROKEN = 4
"""The engine, the box or the watcher does not work."""
NO_TESTS = 5
TIMED_OUT = 124
INTERRUPTED = 130
"""Ctrl-C, or a run that was stopped."""

OF_RUN = {
    "passed": OK,
    "failed": RED,
    "error": RED,
    "no_tests": NO_TESTS,
    "timed_out": TIMED_OUT,
    "cancelled": INTERRUPTED,
    "killed": INTERRUPTED,
    "superseded": INTERRUPTED,
    "broken": BROKEN,
}
"""The exit code for each final state of a run (`core.model.RunState`)."""


def worst(codes: list[int]) -> int:
    """Return the exit code that matters most."""
    return max(codes, key=(OK, NO_TESTS, INTERRUPTED, RED, TIMED_OUT, BROKEN).index)
