"""Green is shown only for code that has been tested as it is now, on every surface and in every state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from support.lane_machine import TESTS, LaneMachine, result
from support.view_output import WRITER
from support.watcher_states import Story, failed, passed

from watchtest.client.status_file import WriterState, exit_code
from watchtest.control.feed import status_message
from watchtest.control.metrics import GAUGES
from watchtest.core.events import (
    CancelRequested,
    ConfirmationBegan,
    Event,
    Halted,
    RunEnded,
    RunRequested,
    ServicesChanged,
    TestsEnded,
)
from watchtest.core.model import Lane, ServiceInfo, StopReason, Verdict
from watchtest.core.state import Broken, Executing, LaneState, State, Working
from watchtest.core.step import leave
from watchtest.core.transitions import facts_of
from watchtest.views import words
from watchtest.views.dashboard.failure_list import output_text
from watchtest.views.dashboard.navigation import ViewState
from watchtest.views.dashboard.watcher_screen import screen_rows
from watchtest.views.lines import json_lines, plain_lines
from watchtest.views.mood import Colour, Mood, mood
from watchtest.views.notify.notifications import NotificationKind, ReportedLanes, new_notifications
from watchtest.views.status.status_document import document
from watchtest.views.status.status_words import block, line

A, B = "a.py::one", "a.py::two"
VIEWS = (ViewState(), ViewState(filter="py"), ViewState(panel="why"))


def green_surfaces(state: State, now: float) -> Iterator[str]:
    """Yield the names of the surfaces on which this state looks green."""
    lane = state.top
    status = document(state, seq=1, now=now, writer=WRITER)
    looks = {
        "status file": status["colour"] == "green",
        "its lane": status["lanes"][lane.lane]["colour"] == "green",
        # A green in a box that was changed by hand is only marked.
        "exit code": exit_code(status, WriterState(is_alive=True)) == 0 and status["provisional"] is None,
        "status line": line(status, "", now).startswith("✔"),
        "status block": "\x1b[1;32m" in block(status, "", now, has_colour=True),
        "last line of the dashboard": words.standing(lane).startswith("✔"),
        "output": output_text(lane, ViewState()).startswith("✔"),
        "event": status_message(lane).document()["colour"] == "green",
        "metric": next(each for each in GAUGES if each.name == "watchtest_colour").numbers(lane)["green"] == 1,
        "dashboard": any(has_green(state, now, view) for view in VIEWS),
        "row of another lane": has_green(beside_another_lane(lane), now, ViewState()),
    }
    yield from (name for name, is_green in looks.items() if is_green)


def has_green(state: State, now: float, view: ViewState) -> bool:
    """Return whether anything on the screen is green, or the band has a tick."""
    rows = screen_rows(state, now=now, height=40, view=view)
    styles = [style for row in rows for _, style in (*row.left, *row.right)]
    styles += [row.band for row in rows] + [row.bar_style for row in rows]
    return any("green" in style for style in styles) or "✔" in rows[0].left[0][0]


def beside_another_lane(lane: LaneState) -> State:
    other = replace(lane, lane=Lane.COMMIT)
    return State({Lane.SAVE: LaneState(Lane.SAVE, lane.policy, "x"), Lane.COMMIT: other})


class SurfaceMachine(LaneMachine):
    """The machine of the laws, with warm failures that are confirmed, and everything that is shown or sent."""

    def __init__(self) -> None:
        super().__init__()
        self.reported: ReportedLanes = {}
        self.sent: list[str] = []
        """What the last event made the watcher send that looks green."""
        self.doubted_run = ""
        """The run that has seen a failure, or the last one that has."""

    def happen(self, event: Event) -> None:
        before = self.state
        super().happen(event)
        self.sent = []
        new, self.reported = new_notifications(self.reported, self.state, "shop")
        greens = (NotificationKind.GREEN, NotificationKind.PASSED)
        if any((each.kind in greens and each.verdict is Verdict.PASSED) or "✔" in each.title for each in new):
            self.sent.append("notification")
        for fact in facts_of(before, self.state, event):
            written = plain_lines.lines(fact, self.lane, event.at)
            plain = [each for each in written if "(provisional: " not in each]
            if any(each.startswith("passed ") and each.endswith((" · save", " · manual")) for each in plain):
                self.sent.append("plain line")
        if any(each.get("colour") == "green" for each in json_lines.objects(before, self.state, event)):
            self.sent.append("JSON line")

    @initialize()
    def begin_on_green(self) -> None:
        self.come_to_rest_on_green()
        assert mood(self.lane) == Mood(Colour.GREEN)

    @rule()
    def come_to_rest_on_green(self) -> None:
        if self.lane.is_paused:
            self.resume()
        self.is_by_hand, self.dependencies = False, self.box
        self.save({A: True, B: True})
        for _ in range(20):
            if self.started is None:
                break
            if self.taken is None:
                self.take_the_snapshot()
            self.judge(set(), None, True)

    @rule(test=st.sampled_from(TESTS), is_confirming=st.booleans())
    def fail_when_warm(self, test: str, is_confirming: bool) -> None:
        """Let a test fail in the warm process that passes in a fresh one; run the tests again if nothing runs."""
        if self.started is None:
            self.ask_for_a_run(None, False, 1)
        if self.started is None:
            return  # paused or broken
        if self.taken is None:
            self.take_the_snapshot()
        run = self.doubted_run = self.started.run.id
        self.happen(TestsEnded(Lane.SAVE, self.at(), run, (result(test, False),)))
        if is_confirming:
            self.happen(ConfirmationBegan(Lane.SAVE, self.at(), run, 1))
            self.happen(TestsEnded(Lane.SAVE, self.at(), run, (result(test, True),), is_check=True))
        else:
            self.streamed.add(test)

    @rule()
    def let_a_service_fail_for_a_moment(self) -> None:
        self.happen(ServicesChanged(Lane.SAVE, self.at(), (ServiceInfo("kv", "failed", self.now),)))
        self.green_is_shown_only_for_the_code_as_it_is()
        self.happen(ServicesChanged(Lane.SAVE, self.at(), ()))

    def is_truly_green(self) -> bool:
        knowledge, truth = self.lane.knowledge, self.truth
        is_known = knowledge.verdict is Verdict.PASSED and knowledge.is_complete and knowledge.snapshot is not None
        is_known = is_known and knowledge.provisional is None
        is_current = is_known and knowledge.snapshot is not None and knowledge.snapshot.id == f"tree-{self.number}"
        is_doubted = isinstance(self.lane.activity, Working) and self.lane.activity.run.id == self.doubted_run
        is_at_peace = not is_doubted and not isinstance(self.lane.activity, Broken) and not self.lane.problem
        return is_current and bool(truth) and all(truth.values()) and is_at_peace

    @invariant()
    def green_is_shown_only_for_the_code_as_it_is(self) -> None:
        shown = [*green_surfaces(self.state, self.now), *self.sent]
        assert not shown or self.is_truly_green(), shown
        assert not list(green_surfaces(leave(self.state), self.now)), "no watcher is there to see changes"

    @invariant()
    def every_surface_that_shows_a_verdict_agrees(self) -> None:
        count = len(list(green_surfaces(self.state, self.now)))
        assert count == (0 if mood(self.lane).colour is not Colour.GREEN else 11)


TestGreenIsNeverFalse = SurfaceMachine.TestCase
TestGreenIsNeverFalse.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def moods(story: Story) -> Mood:
    return mood(story.state.top)


def test_a_failure_of_the_current_run_is_amber_until_it_counts() -> None:
    story = Story().run("t1", passed(A), passed(B)).change("x.py").sync("t2").collect(A, B)
    assert moods(story) == Mood(Colour.GREY, "testing 1 change")
    assert moods(story.results(failed(A))) == Mood(Colour.AMBER, "1 failure so far")
    assert moods(story.results(passed(B)).confirm(1)) == Mood(Colour.AMBER, "confirming 1 failure")
    assert moods(story.results(passed(A), is_check=True)) == Mood(Colour.AMBER, "confirming 1 failure")
    assert moods(story.end("t2", [passed(A), passed(B)])) == Mood(Colour.GREEN)


def test_an_error_of_collection_is_amber_while_it_is_confirmed() -> None:
    story = Story().run("t1", passed(A)).change("x.py").sync("t2").collect(A).confirm(1)
    assert moods(story) == Mood(Colour.AMBER, "confirming 1 failure")


def test_a_known_failure_stays_red_while_it_runs_again() -> None:
    story = Story().run("t1", failed(A)).change("x.py").sync("t2").collect(A)
    assert moods(story.results(passed(A))) == Mood(Colour.RED, "testing 1 change")


def test_a_rerun_of_green_code_stays_green_until_a_test_fails() -> None:
    story = Story().run("t1", passed(A))
    story.on(RunRequested(Lane.SAVE, story.now)).sync("t1").collect(A)
    assert moods(story) == Mood(Colour.GREEN)
    story.results(failed(A))
    assert isinstance(story.working.phase, Executing)
    assert moods(story) == Mood(Colour.AMBER, "1 failure so far")
    story.on(CancelRequested(Lane.SAVE, story.now))
    story.on(RunEnded(Lane.SAVE, story.now, story.working.run.id, Halted(StopReason.CANCELLED)))
    assert moods(story) == Mood(Colour.AMBER, "1 failure in a run that was not finished")


def test_a_rerun_that_finds_other_code_is_not_green() -> None:
    story = Story().run("t1", passed(A))
    story.on(RunRequested(Lane.SAVE, story.now)).sync("t2")
    assert moods(story) == Mood(Colour.GREY, "testing other code")
