"""Which tests a run executes, why, and in which order of files.

The policy decides, or a request: the last ones again, or those with a matching name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from watchtest.core.model import All, Only, Policy, Result, Selection
from watchtest.core.state import Knowledge, LaneState, Working
from watchtest.core.verdict import file_of


def policy_selection(policy: Policy, knowledge: Knowledge) -> Selection:
    """Return the selection that a policy asks for, given what is known so far."""
    match policy:
        case Policy.FAILED:
            red = tuple(known.result.test for known in knowledge.red)
            return Only(red, f"{len(red)} known to fail") if red else All("all tests, because none is known to fail")
        case Policy.AFFECTED:
            return All(because="any test may be affected")
        case Policy.ALL | Policy.OFF:
            return All(because="all tests")


def repeat_selection(lane: LaneState) -> Selection | None:
    """Return the selection of the active or last run; None if there is none, so that the policy decides."""
    run = lane.activity.run if isinstance(lane.activity, Working) else lane.runs.last.run if lane.runs.last else None
    if run is None:
        return None
    if isinstance(run.selection, Only) and run.selection.tests:
        return Only(run.selection.tests, because="the last tests again, on request")
    return All(because="all tests again, on request")


def matching_selection(lane: LaneState, text: str) -> Only | None:
    """Return the known tests with these words in their names; None if there are none."""
    tests = tuple(sorted(test for test in lane.knowledge.tests if is_matched(test, text)))
    return Only(tests, because=f"on request: names with {text!r}") if tests else None


def is_matched(test: str, text: str) -> bool:
    """Return whether the name of a test contains all these words, in upper or lower case."""
    name = test.lower()
    return all(word in name for word in text.lower().split())


# -- the order of the files ------------------------------------------------------------------------

UNKNOWN = "*"
"""Used in place of a file: unknown files run here, in the order in which they were found."""


def file_order(latest_results: Mapping[str, Result], changed: Collection[str]) -> tuple[str, ...]:
    """Return files with a red test, then changed ones, then `UNKNOWN`, then the others, the shortest first.

    `changed` lists the paths that differ from the tree of the last verdict. Without results the order is empty, and the
    runner uses its own. Tests keep their order within a file: a test may rely on the ones before it, and fixtures of a
    module would otherwise be set up twice.
    """
    if not latest_results:
        return ()
    durations: dict[str, float] = {}
    red = set()
    for test, result in latest_results.items():
        file = file_of(test)
        durations[file] = durations.get(file, 0.0) + result.duration_s
        if result.outcome.is_red:
            red.add(file)

    def rank(file: str) -> tuple[bool, float, str]:
        return file not in changed, durations[file], file

    first = sorted(red, key=rank)
    then = sorted((file for file in durations.keys() - red if file in changed), key=rank)
    last = sorted((file for file in durations.keys() - red if file not in changed), key=rank)
    return (*first, *then, UNKNOWN, *last)
