"""Which tests a run shall run, and because of what. Pure."""

from __future__ import annotations

from watchtest.core.model import All, Only, Policy, Selection
from watchtest.core.state import Knowledge


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
