"""Decides in which colour a lane is shown, and why its verdict may not hold for the code as it is now. Pure.

Every view asks here, so green means the same everywhere: all tests passed on exactly this code, and no failure has been
seen since.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from watchtest.core.events import EVERYTHING
from watchtest.core.model import ProvisionalCode, Verdict
from watchtest.core.state import Executing, LaneState, PendingChanges, Stopped, Working
from watchtest.core.text import count, one_line


class Colour(StrEnum):
    GREEN = "green"
    """All tests have passed on the code as it is now."""
    RED = "red"
    """The last verdict is red; a known failure stays red until that very test has passed."""
    AMBER = "amber"
    """A failure was seen that does not count yet, the verdict is provisional, or there are no tests."""
    GREY = "grey"
    """What is known is not about the code as it is now, or nothing is known."""


@dataclass(frozen=True, slots=True)
class Mood:
    colour: Colour
    doubt: str = ""
    """Why the verdict may not hold for the code as it is now, in one line."""


def mood(lane: LaneState) -> Mood:
    """Return the colour of a lane and the doubt about its verdict."""
    verdict = lane.knowledge.verdict
    failures = _uncounted_failures(lane)
    doubt = failures or _doubt(lane)
    if verdict.is_red:
        return Mood(Colour.RED, doubt)
    if failures:
        return Mood(Colour.AMBER, doubt)
    if verdict is Verdict.UNKNOWN or doubt:
        return Mood(Colour.GREY, doubt)
    is_final = lane.knowledge.provisional is None
    return Mood(Colour.GREEN if verdict is Verdict.PASSED and is_final else Colour.AMBER)


def counts_as_green(lane: LaneState) -> bool:
    """Return whether a lane is green, or would be if the user had not changed its box by hand: no other will follow."""
    shown, provisional = mood(lane), lane.knowledge.provisional
    is_by_hand = provisional is not None and provisional.code is ProvisionalCode.BY_HAND and not shown.doubt
    return shown.colour is Colour.GREEN or (is_by_hand and lane.knowledge.verdict is Verdict.PASSED)


def _uncounted_failures(lane: LaneState) -> str:
    """Describe failures that are not part of the verdict: of the current run, or of one that reached no verdict."""
    phase = lane.activity.phase if isinstance(lane.activity, Working) else None
    if isinstance(phase, Executing) and phase.confirming:
        return f"confirming {count(phase.confirming, 'failure')}"
    if isinstance(phase, Executing) and phase.red:
        return f"{count(len(phase.red), 'failure')} so far"
    if lane.knowledge.verdict is Verdict.UNKNOWN:
        return ""  # what an earlier watcher saw only decides the order of the first run
    unjudged = sum(result.outcome.is_red for result in lane.unjudged_results.values())
    return f"{count(unjudged, 'failure')} in a run that was not finished" if unjudged else ""


def _doubt(lane: LaneState) -> str:
    """Return why the verdict may not be about the code as it is now."""
    working = lane.activity if isinstance(lane.activity, Working) else None
    if isinstance(lane.activity, Stopped):
        return "watcher stopped"
    if lane.problem is not None:
        return one_line(lane.problem.message)
    if lane.blocked_by:
        return one_line(lane.blocked_by)
    if working is not None and working.changes:
        return "testing all files" if EVERYTHING in working.changes.paths else f"testing {_count(working.changes)}"
    if lane.pending:
        return "anything may have changed" if EVERYTHING in lane.pending.paths else f"{_count(lane.pending)} pending"
    if working is not None and working.snapshot is not None and lane.knowledge.snapshot is not None:
        return "testing other code" if working.snapshot.id != lane.knowledge.snapshot.id else ""
    return ""


def _count(changes: PendingChanges) -> str:
    return count(len(changes.paths), "change")
