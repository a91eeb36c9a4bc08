"""When a clean environment is built behind the runs, and what follows when it is ready or fails."""

from __future__ import annotations

import pytest
from support.watcher_states import OUTDATED, Story, passed

from watchtest.core.events import (
    BuildEnvironment,
    Effects,
    EnvironmentBuilt,
    EnvironmentChecked,
    Event,
    PolicyRequested,
    RunRequested,
    SetTimer,
    StartRun,
    StopBuild,
    TimerFired,
)
from watchtest.core.model import All, Lane, Only, Policy, Problem
from watchtest.core.state import BuildFailed, Building, LaneState, settle_status
from watchtest.core.step import step

A, B = "tests/test_a.py::test_a", "tests/test_a.py::test_b"
SAVE = Lane.SAVE
FAILED = Problem("setup", "pip failed")


def effects(story: Story, event: Event) -> Effects:
    found = step(story.state, event)[1]
    story.on(event)
    return found


def lane(story: Story) -> LaneState:
    return story.state.lanes[SAVE]


def outdated(*results: str) -> Story:
    """Return a lane whose tests have run in an outdated box, and whose environment is being built."""
    story = Story().change("requirements.txt")
    assert effects(story, EnvironmentChecked(SAVE, story.now, "new")) == (BuildEnvironment(SAVE, "new"),)
    return story.sync("t1").end("t1", [passed(test) for test in results or (A, B)], provisional=OUTDATED)


def test_a_build_is_ordered_once_and_superseded_by_another() -> None:
    story = outdated()
    assert effects(story, EnvironmentChecked(SAVE, story.now, "new")) == ()
    assert effects(story, EnvironmentChecked(SAVE, story.now, "newer")) == (BuildEnvironment(SAVE, "newer"),)
    assert effects(story, EnvironmentBuilt(SAVE, story.now, "new")) == ()
    assert lane(story).build == Building("newer", story.now)


def test_a_build_that_is_no_longer_needed_is_stopped() -> None:
    story = outdated()
    assert effects(story, EnvironmentChecked(SAVE, story.now, "")) == (StopBuild(SAVE),)
    assert lane(story).build is None


def test_a_lane_has_not_settled_while_its_environment_is_built() -> None:
    story = outdated()
    assert settle_status(lane(story)).waits_for == "a clean environment is being built"
    story.on(EnvironmentBuilt(SAVE, story.now, "new", FAILED))
    assert settle_status(lane(story)).is_settled
    assert lane(story).problem == FAILED


@pytest.mark.parametrize("policy", [Policy.AFFECTED, Policy.ALL, Policy.FAILED, Policy.OFF])
def test_all_tests_run_when_the_environment_is_ready(policy: Policy) -> None:
    story = outdated()
    story.on(PolicyRequested(SAVE, story.now, policy))
    (start,) = effects(story, EnvironmentBuilt(SAVE, story.now, "new"))
    assert isinstance(start, StartRun)
    assert isinstance(start.run.selection, All)


def test_some_tests_in_the_clean_environment_are_no_verdict_on_all() -> None:
    story = outdated()
    story.on(RunRequested(SAVE, story.now, Only((A,), because="asked")))
    story.sync("t1").end("t1", [passed(A)])
    assert lane(story).knowledge.provisional is None
    assert not lane(story).knowledge.is_complete
    assert lane(story).knowledge.base is None
    assert isinstance(story.working.run.selection, All), "the others run next"


def test_a_failed_build_is_tried_again_on_request_and_not_by_the_next_save() -> None:
    story = outdated()
    story.on(EnvironmentBuilt(SAVE, story.now, "new", FAILED)).change("a.py")
    assert effects(story, EnvironmentChecked(SAVE, story.now, "new")) == ()
    story.sync("t2").end("t2", [passed(A)], provisional=OUTDATED)
    story.on(RunRequested(SAVE, story.now))
    assert effects(story, EnvironmentChecked(SAVE, story.now, "new")) == (BuildEnvironment(SAVE, "new"),)


def test_a_transient_problem_is_tried_again_after_a_while() -> None:
    story = outdated()
    (timer,) = effects(story, EnvironmentBuilt(SAVE, story.now, "new", FAILED, is_transient=True))
    assert isinstance(timer, SetTimer)
    assert isinstance(lane(story).build, BuildFailed)
    assert effects(story, TimerFired(SAVE, timer.at)) == (BuildEnvironment(SAVE, "new"),)
