"""Which tests a run shall run, and because of what. Pure."""

from __future__ import annotations

from watchtest.core.model import All, Only, Policy, Selection
from watchtest.core.state import Knowledge, LaneState, Working


def choose(policy: Policy, knowledge: Knowledge) -> Selection:
    """The selection of a lane's policy for what is known so far."""
    match policy:
        case Policy.FAILED:
            return _failed(knowledge)
        case Policy.AFFECTED:
            return All(because="any test may be affected")
        case Policy.ALL | Policy.OFF:
            return All(because="all tests")


def _failed(knowledge: Knowledge) -> Selection:
    red = tuple(known.result.test for known in knowledge.red)
    if not red:
        return All(because="no test is known to fail, so all tests")
    return Only(red, because=f"{len(red)} known to fail")


def again(lane: LaneState) -> Selection | None:
    """What ran last, or is running; None where nothing has: the policy decides then."""
    run = lane.activity.run if isinstance(lane.activity, Working) else lane.last.run if lane.last else None
    if run is None:
        return None
    if isinstance(run.selection, Only) and run.selection.tests:
        return Only(run.selection.tests, because="the last tests again, asked for")
    return All(because="asked for again")


def matching(lane: LaneState, text: str) -> Only | None:
    """The known tests with these words in their names; None where there is none."""
    tests = tuple(sorted(test for test in lane.knowledge.tests if is_matched(test, text)))
    return Only(tests, because=f"asked for: names with {text!r}") if tests else None


def is_matched(test: str, text: str) -> bool:
    """Whether the name of a test has all these words in it, large or small."""
    name = test.lower()
    return all(word in name for word in text.lower().split())
