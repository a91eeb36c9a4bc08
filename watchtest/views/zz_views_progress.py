"""How far a run is, and how long it will still take by what its tests took before. Pure."""

from __future__ import annotations

from watchtest.core.state import Executing, LaneState, Working

LEAST_SHARE = 0.2
"""Before so much of a run has passed, its pace says nothing: it has just begun, and collected before."""
PACE_LIMITS = (0.1, 10.0)


def eta_s(lane: LaneState, now: float) -> float | None:
    """Seconds until the run under way has ended; None where nobody can tell."""
    match lane.activity:
        case Working(phase=Executing(promised=promised, results=results, since=since)) if promised:
            pass
        case _:
            return None
    took = {test: known.result.duration_s for test, known in lane.knowledge.tests.items()}
    took |= {test: result.duration_s for test, result in lane.partial.items()}
    waiting = promised - results.keys()
    known = [took[test] for test in waiting if test in took]
    done_s = sum(result.duration_s for result in results.values())
    if not known and not results:
        return None
    mean_s = sum(known) / len(known) if known else done_s / len(results)
    left_s = sum(known) + mean_s * (len(waiting) - len(known))
    is_under_way = len(results) >= LEAST_SHARE * len(promised)
    return max(left_s * (_pace(now - since, done_s) if is_under_way else 1.0), 0.0)


def _pace(elapsed_s: float, done_s: float) -> float:
    """How much longer a second of tests takes here: several may run side by side, and there is more than tests."""
    if done_s <= 0:
        return 1.0
    least, most = PACE_LIMITS
    return min(max(elapsed_s / done_s, least), most)
