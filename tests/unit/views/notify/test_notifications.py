"""Which events cause a notification, and which do not."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.watcher_states import BY_HAND, OUTDATED, Story, failed, passed, snapshot, start

from watchtest.core.events import CancelRequested, Halted, RunEnded, Unchanged
from watchtest.core.model import Lane, Policy, StopReason, Verdict
from watchtest.views.notify.notifications import (
    KINDS_BY_MODE,
    Notification,
    NotificationKind,
    NotifyMode,
    new_notifications,
)

A, B = (f"tests/test_a.py::test_{name}" for name in "ab")


def told_by(story: Story, mode: NotifyMode = NotifyMode.CHANGES) -> list[Notification]:
    """Return every notification of a story, state by state, as the watcher would send them."""
    said: list[Notification] = []
    told = new_notifications({}, story.steps[0][0], "shop")[1]
    for _, after, _ in story.steps:
        new, told = new_notifications(told, after, "shop")
        said += [notice for notice in new if notice.kind in KINDS_BY_MODE[mode]]
    return said


def titles(story: Story, mode: NotifyMode = NotifyMode.CHANGES) -> list[str]:
    return [notice.title for notice in told_by(story, mode)]


def test_a_first_green_verdict_is_no_news() -> None:
    assert titles(Story().run("t1", passed(A))) == []


def test_a_first_red_verdict_is_told() -> None:
    [notice] = told_by(Story().run("t1", passed(A), failed(B)))
    assert (notice.kind, notice.title, notice.lines) == (NotificationKind.RED, "✘ shop: 1 test failed", (B,))
    assert (notice.tests, notice.red, notice.tree, notice.verdict) == ((B,), 1, "t1", Verdict.FAILED)
    assert notice.run


def test_green_to_red_and_back_are_told_once_each() -> None:
    story = (
        Story().run("t1", passed(A)).run("t2", failed(A)).run("t3", failed(A)).run("t4", passed(A)).run("t5", passed(A))
    )
    assert titles(story) == ["✘ shop: 1 test failed", "✔ shop: green again"]


def test_green_with_outdated_dependencies_is_told_when_it_is_final() -> None:
    story = Story().run("t1", failed(A)).run("t2", passed(A), provisional=OUTDATED)
    assert titles(story) == ["✘ shop: 1 test failed"]
    assert titles(story.run("t2", passed(A)))[1:] == ["✔ shop: green again"]


def test_red_with_outdated_dependencies_is_told_at_once() -> None:
    assert titles(Story().run("t1", failed(A), provisional=OUTDATED)) == ["✘ shop: 1 test failed"]


def test_green_in_a_box_that_was_changed_by_hand_is_told_as_what_it_is() -> None:
    story = Story().run("t1", failed(A)).run("t2", passed(A), provisional=BY_HAND)
    assert titles(story)[1:] == ["≈ shop: passed provisionally: changed by hand: pip install x"]


def test_a_new_failure_while_red_is_told_by_its_name_alone() -> None:
    [_, more] = told_by(Story().run("t1", failed(A), passed(B)).run("t2", failed(A), failed(B)))
    assert (more.kind, more.title, more.lines) == (
        NotificationKind.MORE_RED,
        "✘ shop: 1 new failure, 2 in total",
        (B,),
    )
    assert (more.tests, more.red) == ((B,), 2)


def test_one_failure_for_another_is_told_without_a_sum() -> None:
    story = Story().run("t1", failed(A), passed(B)).run("t2", passed(A), failed(B))
    assert titles(story) == ["✘ shop: 1 test failed", "✘ shop: 1 new failure"]


def test_many_failures_are_named_in_part_and_listed_in_full() -> None:
    names = [f"tests/test_a.py::test_{number}" for number in range(7)]
    [notice] = told_by(Story().run("t1", *map(failed, names)))
    assert notice.lines == (*names[:3], "and 4 more")
    assert notice.text == ", ".join(notice.lines)
    assert notice.tests == tuple(names)


def test_fewer_failures_while_red_are_not_told() -> None:
    assert len(titles(Story().run("t1", failed(A), failed(B)).run("t2", failed(A), passed(B)))) == 1


def test_values_of_assertions_are_never_told() -> None:
    [notice] = told_by(Story().run("t1", failed(A, message="assert 'secret' == 'hidden'")))
    assert "secret" not in notice.title + notice.text


def test_red_to_unknown_to_green_is_still_red_to_green() -> None:
    story = Story(start(policy=Policy.FAILED)).run("t1", failed(A), passed(B))
    # Only the red test runs first on the new tree: it passes, and nothing is known about the other one yet.
    story.change("x.py").sync("t2").collect(A).results(passed(A)).end("t2", [passed(A)])
    assert story.state.top.knowledge.verdict is Verdict.UNKNOWN
    story.sync("t2").collect(A, B).results(passed(A), passed(B)).end("t2", [passed(A), passed(B)])
    assert titles(story) == ["✘ shop: 1 test failed", "✔ shop: green again"]


def test_a_cancelled_run_is_not_told() -> None:
    story = Story().run("t1", passed(A)).change("x.py").sync("t2").collect(A).results(failed(A))
    story.on(CancelRequested(Lane.SAVE, story.now))
    story.on(RunEnded(Lane.SAVE, story.now, story.working.run.id, Halted(StopReason.CANCELLED)))
    assert titles(story) == []


def test_a_superseded_run_is_not_told() -> None:
    story = Story().run("t1", passed(A)).change("x.py").sync("t2").collect(A).results(failed(A))
    story.on(RunEnded(Lane.SAVE, story.now, story.working.run.id, Halted(StopReason.SUPERSEDED)))
    assert titles(story) == []


def test_a_run_without_tests_is_not_told_and_forgets_nothing() -> None:
    story = Story().run("t1", failed(A)).run("t2")
    assert story.state.top.knowledge.verdict is Verdict.NO_TESTS
    story.run("t3", passed(A))
    assert titles(story) == ["✘ shop: 1 test failed", "✔ shop: green again"]


def test_a_box_that_breaks_for_a_moment_is_not_told() -> None:
    story = Story().run("t1", passed(A)).change("x.py").breaks()
    assert titles(story) == []


def test_a_box_that_is_given_up_is_told_and_its_return_too() -> None:
    story = Story().run("t1", passed(A)).change("x.py").breaks(is_transient=False)
    [lost] = told_by(story)
    assert (lost.kind, lost.title) == (NotificationKind.LOST, "⚠ shop: cannot run tests")
    assert "does not answer" in lost.text
    story.change("y.py").breaks(is_transient=False).change("z.py").sync("t2").collect(A)
    assert titles(story) == ["⚠ shop: cannot run tests", "↻ shop: tests run again"]
    assert told_by(story)[-1].verdict is Verdict.UNKNOWN, "the last verdict, which is green, is about other code"


def test_green_on_code_that_has_changed_since_is_told_only_when_it_holds() -> None:
    story = Story().run("t1", failed(A)).change("x.py").sync("t2").collect(A).change("y.py")
    assert titles(story.end("t2", [passed(A)])) == ["✘ shop: 1 test failed"]
    story.sync("t2").on(RunEnded(Lane.SAVE, story.now, story.working.run.id, Unchanged(snapshot("t2"))))
    assert titles(story) == ["✘ shop: 1 test failed", "✔ shop: green again"]


def test_a_failure_is_told_when_it_is_confirmed() -> None:
    story = Story().run("t1", passed(A)).change("x.py").sync("t2").collect(A).results(failed(A)).confirm(1)
    assert titles(story) == []
    assert titles(story.end("t2", [failed(A)])) == ["✘ shop: 1 test failed"]


def test_each_lane_is_told_under_its_own_name() -> None:
    story = Story(start(Lane.SAVE, Lane.COMMIT), lane=Lane.COMMIT).run("t1", failed(A))
    assert titles(story) == ["✘ shop (commit): 1 test failed"]


def test_green_in_one_lane_does_not_hide_that_another_is_red() -> None:
    story = Story(start(Lane.SAVE, Lane.COMMIT), lane=Lane.COMMIT).run("t1", failed(A))
    story.lane = Lane.SAVE
    story.run("t2", failed(A)).run("t3", passed(A))
    green = told_by(story)[-1]
    assert (green.title, green.lines) == ("✔ shop (save): green again", ("1 test", "the commit lane is still red"))


def test_a_box_that_is_back_says_that_red_is_still_red() -> None:
    story = Story().run("t1", failed(A)).change("x.py").breaks(is_transient=False).change("z.py").sync("t2").collect(A)
    assert told_by(story)[-1].lines == ("1 test still failing",)


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        (NotifyMode.OFF, []),
        (NotifyMode.FAILURES, ["✘ shop: 1 test failed", "✘ shop: 1 new failure, 2 in total"]),
        (
            NotifyMode.ALL,
            [
                "✔ shop: passed 2 tests",
                "✘ shop: 1 test failed",
                "✘ shop: 1 new failure, 2 in total",
                "✘ shop: 2 tests still failing",
                "✔ shop: green again",
                "✔ shop: passed 2 tests",
            ],
        ),
    ],
)
def test_each_mode_tells_its_own(mode: NotifyMode, told: list[str]) -> None:
    story = Story().run("t1", passed(A), passed(B)).run("t2", failed(A), passed(B))
    story.run("t3", failed(A), failed(B)).run("t4", failed(A), failed(B))
    story.run("t5", passed(A), passed(B)).run("t6", passed(A), passed(B))
    assert titles(story, mode) == told


def test_control_sequences_in_names_never_reach_the_desktop() -> None:
    [notice] = told_by(Story().run("t1", failed("tests/test_a.py::test[\x1b]0;x\x07\x1b[31mred\u202e]")))
    assert notice.lines == notice.tests == ("tests/test_a.py::test[red]",)


@given(runs=st.lists(st.sampled_from(["both", "a", "b", "neither", "nothing", "cancelled", "superseded"]), min_size=1))
def test_the_last_notice_is_as_red_as_the_code_is_known_to_be(runs: list[str]) -> None:
    story = Story()
    for number, run in enumerate(runs):
        red_a, red_b = run in ("both", "a"), run in ("both", "b")
        match run:
            case "nothing":
                story.run(f"t{number}")
            case "cancelled" | "superseded":
                story.change("x.py").sync(f"t{number}").collect(A).results(failed(A))
                stop = StopReason.CANCELLED if run == "cancelled" else StopReason.SUPERSEDED
                story.on(RunEnded(Lane.SAVE, story.now, story.working.run.id, Halted(stop)))
                if run == "superseded":  # its successor starts at once
                    story.sync(f"t{number}+").end(f"t{number}+", [])
            case _:
                story.run(f"t{number}", (failed if red_a else passed)(A), (failed if red_b else passed)(B))
    told = [notice.kind.is_trouble for notice in told_by(story)]
    colours = [
        after.top.knowledge.verdict.is_red
        for _, after, _ in story.steps
        if after.top.knowledge.verdict.is_red or after.top.knowledge.verdict is Verdict.PASSED
    ]
    assert (told[-1] if told else False) == (colours[-1] if colours else False)
    assert not any(one is two is False for one, two in pairwise(told)), "green is reported once"
