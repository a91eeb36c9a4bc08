"""What is worth a notification, and what is not."""

from __future__ import annotations

from view_states import Story, failed, passed, start

from watchtest.core.events import CancelAsked, Halted, RunEnded
from watchtest.core.model import Lane, Policy, Stop, Verdict
from watchtest.views.desktop import Notice, notices

A, B = (f"tests/test_a.py::test_{name}" for name in "ab")


def told_by(story: Story) -> list[Notice]:
    """Every notice of a story, state by state, as the watcher would send them."""
    said: list[Notice] = []
    told = notices({}, story.steps[0][0], "shop")[1]
    for _, after, _ in story.steps:
        new, told = notices(told, after, "shop")
        said += new
    return said


def titles(story: Story) -> list[str]:
    return [notice.title for notice in told_by(story)]


def test_a_first_green_verdict_is_no_news() -> None:
    assert titles(Story().run("t1", passed(A))) == []


def test_a_first_red_verdict_is_told() -> None:
    [notice] = told_by(Story().run("t1", passed(A), failed(B)))
    assert notice == Notice("watchtest: 1 test red", f"shop: {B}", True)


def test_green_to_red_and_back_are_told_once_each() -> None:
    story = (
        Story().run("t1", passed(A)).run("t2", failed(A)).run("t3", failed(A)).run("t4", passed(A)).run("t5", passed(A))
    )
    assert titles(story) == ["watchtest: 1 test red", "watchtest: green again"]


def test_a_new_failure_while_red_is_told_by_its_name_alone() -> None:
    [_, more] = told_by(Story().run("t1", failed(A), passed(B)).run("t2", failed(A), failed(B)))
    assert more == Notice("watchtest: 1 test more red", f"shop: {B}", True)


def test_fewer_failures_while_red_are_not_told() -> None:
    assert len(titles(Story().run("t1", failed(A), failed(B)).run("t2", failed(A), passed(B)))) == 1


def test_values_of_assertions_are_never_told() -> None:
    [notice] = told_by(Story().run("t1", failed(A, message="assert 'secret' == 'hidden'")))
    assert "secret" not in notice.title + notice.text


def test_red_to_unknown_to_green_is_still_red_to_green() -> None:
    story = Story(start(policy=Policy.FAILED)).run("t1", failed(A), passed(B))
    # The red test alone runs on the new tree first: it passes, and nothing is known of the other one yet.
    story.change("x.py").sync("t2").collect(A).results(passed(A)).end("t2", [passed(A)])
    assert story.state.top.knowledge.verdict is Verdict.UNKNOWN
    story.sync("t2").collect(A, B).results(passed(A), passed(B)).end("t2", [passed(A), passed(B)])
    assert titles(story) == ["watchtest: 1 test red", "watchtest: green again"]


def test_a_cancelled_run_is_not_told() -> None:
    story = Story().run("t1", passed(A)).change("x.py").sync("t2").collect(A).results(failed(A))
    story.on(CancelAsked(Lane.SAVE, story.now))
    story.on(RunEnded(Lane.SAVE, story.now, story.working.run.id, Halted(Stop.CANCELLED)))
    assert titles(story) == []


def test_a_superseded_run_is_not_told() -> None:
    story = Story().run("t1", passed(A)).change("x.py").sync("t2").collect(A).results(failed(A))
    story.on(RunEnded(Lane.SAVE, story.now, story.working.run.id, Halted(Stop.SUPERSEDED)))
    assert titles(story) == []


def test_a_run_without_tests_is_not_told_and_forgets_nothing() -> None:
    story = Story().run("t1", failed(A)).run("t2")
    assert story.state.top.knowledge.verdict is Verdict.NO_TESTS
    story.run("t3", passed(A))
    assert titles(story) == ["watchtest: 1 test red", "watchtest: green again"]


def test_a_box_that_breaks_for_a_moment_is_not_told() -> None:
    story = Story().run("t1", passed(A)).change("x.py").breaks()
    assert titles(story) == []


def test_a_box_that_is_given_up_is_told_and_its_return_too() -> None:
    story = Story().run("t1", passed(A)).change("x.py").breaks(is_passing=False)
    [lost] = told_by(story)
    assert lost.title == "watchtest: cannot run tests"
    assert "does not answer" in lost.text
    story.change("y.py").breaks(is_passing=False).change("z.py").sync("t2").collect(A)
    assert titles(story) == ["watchtest: cannot run tests", "watchtest: running tests again"]


def test_each_lane_is_told_under_its_own_name() -> None:
    story = Story(start(Lane.SAVE, Lane.COMMIT), lane=Lane.COMMIT).run("t1", failed(A))
    assert [notice.text for notice in told_by(story)] == [f"shop (commit): {A}"]


def test_control_sequences_in_names_never_reach_the_desktop() -> None:
    [notice] = told_by(Story().run("t1", failed("tests/test_a.py::test[\x1b]0;x\x07\x1b[31mred\u202e]")))
    assert notice.text == "shop: tests/test_a.py::test[red]"
