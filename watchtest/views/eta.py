"""Estimates how long the current run will still take."""

from __future__ import annotations

from watchtest.core.state import Executing, LaneState, Working

LEAST_SHARE = 0.2
"""The pace of a run counts only after this share of its tests: before that, startup and collection dominate."""
PACE_LIMITS = (0.1, 10.0)


def eta_s(lane: LaneState, now: float) -> float | None:
    """Return the seconds until the current run ends, estimated from earlier durations; None if unknown."""
    phase = lane.activity.phase if isinstance(lane.activity, Working) else None
    if not isinstance(phase, Executing) or not phase.promised:
        return None
    promised, results = phase.promised, phase.results
    took = {test: known.result.duration_s for test, known in lane.knowledge.tests.items()}
    took |= {test: result.duration_s for test, result in lane.unjudged_results.items()}
    waiting = promised - results.keys()
    known = [took[test] for test in waiting if test in took]
    done_s = sum(result.duration_s for result in results.values())
    if not known and not results:
        return None
    mean_s = sum(known) / len(known) if known else done_s / len(results)
    left_s = sum(known) + mean_s * (len(waiting) - len(known))
    is_under_way = len(results) >= LEAST_SHARE * len(promised)
    return max(left_s * (_pace(now - phase.since, done_s) if is_under_way else 1.0), 0.0)


def _pace(elapsed_s: float, done_s: float) -> float:
    """Return the elapsed time per second of tests: tests may run in parallel, and there is overhead."""
    if done_s <= 0:
        return 1.0
    least, most = PACE_LIMITS
    return min(max(elapsed_s / done_s, least), most)
