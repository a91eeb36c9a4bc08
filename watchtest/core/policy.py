"""Which tests a run shall run, and because of what. Pure.

In which order files of tests run: what is likely to be red first, then what is quick. Pure.

The grain is the file: its tests keep their own order. A test that relies on the ones before it in its file would be red
for ever if it were pulled out of there, and fixtures of a module would be set up twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from watchtest.core.model import All, Only, Policy, Result, Selection
from watchtest.core.state import Knowledge, LaneState, Working
from watchtest.core.verdict import file_of


def policy_selection(policy: Policy, knowledge: Knowledge) -> Selection:
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


def repeat_selection(lane: LaneState) -> Selection | None:
    """What ran last, or is running; None where nothing has: the policy decides then."""
    run = lane.activity.run if isinstance(lane.activity, Working) else lane.runs.last.run if lane.runs.last else None
    if run is None:
        return None
    if isinstance(run.selection, Only) and run.selection.tests:
        return Only(run.selection.tests, because="the last tests again, asked for")
    return All(because="asked for again")


def matching_selection(lane: LaneState, text: str) -> Only | None:
    """The known tests with these words in their names; None where there is none."""
    tests = tuple(sorted(test for test in lane.knowledge.tests if is_matched(test, text)))
    return Only(tests, because=f"asked for: names with {text!r}") if tests else None


def is_matched(test: str, text: str) -> bool:
    """Whether the name of a test has all these words in it, large or small."""
    name = test.lower()
    return all(word in name for word in text.lower().split())


UNKNOWN = "*"
"""In place of a file: here go the files that nobody knows yet, in the order in which they were found."""


def file_order(known: Mapping[str, Result], changed: Collection[str]) -> tuple[str, ...]:
    """Files with a red test, then changed ones, then unknown ones (`UNKNOWN`), then the others, the shortest first.

    `known` is the last word on every test, `changed` what differs from the tree of the last verdict. Nothing, where no
    test is known: then the runner's own order is as good as any.
    """
    if not known:
        return ()
    durations: dict[str, float] = {}
    red = set()
    for test, result in known.items():
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
