"""The key table, and what actions request from a watcher in this process and from one elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.watcher_states import NOON, Story, failed, passed

import watchtest
from watchtest.commands import COMMANDS
from watchtest.core.events import (
    CancelRequested,
    PauseRequested,
    PolicyRequested,
    QuitRequested,
    ResumeRequested,
    RunRequested,
)
from watchtest.core.model import All, Lane, Only, Policy
from watchtest.views.dashboard.actions import ACTIONS, FOOTER_ORDER, KEYS, Action, ApiRequest, events_of, requests_of
from watchtest.views.dashboard.navigation import ViewState, press

A, B = "tests/test_a.py::test_a", "tests/test_a.py::test_b"
SAVE = Lane.SAVE
HELP_PAGE = Path(watchtest.__file__).parent / "help" / "watcher.md"


def test_every_action_has_one_key_a_help_text_and_a_place_in_the_footer() -> None:
    assert [binding.action for binding in KEYS] == list(Action)
    assert all(0 < len(binding.help) < 25 for binding in KEYS), "two columns fit on 60"
    assert sorted(FOOTER_ORDER) == sorted(binding.label for binding in KEYS if binding.action is not Action.SELECT)


def test_a_key_changes_the_view_or_asks_for_its_action() -> None:
    for key, action in ACTIONS.items():
        view, asked = press(ViewState(), key, 1)
        is_own = action in (Action.FILTER, Action.SELECT, Action.WHY, Action.HELP)
        assert (view != ViewState(), asked) == (is_own, None if is_own else action)
        assert press(ViewState(), key.upper(), 1)[1] == asked or key in ("up", "down")
    assert press(ViewState(), "x", 0) == (ViewState(), None)


def test_the_help_page_lists_the_same_keys_with_commands_that_exist() -> None:
    text = HELP_PAGE.read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if re.match(r"\| `[^`]{1,2}`", line)]
    assert [re.sub(r"[|` ]", "", row[0]) for row in rows] == [binding.label for binding in KEYS]
    commands = [command for row in rows for command in re.findall(r"`watchtest ([a-z]+)", row[1])]
    assert len(commands) >= 10
    assert set(commands) <= set(COMMANDS)


def test_an_action_becomes_events_of_the_top_lane() -> None:
    story = Story().run("t1", failed(A), passed(B))
    state = story.state
    assert events_of(Action.QUIT, "", state, NOON) == (QuitRequested(SAVE, NOON),)
    assert events_of(Action.ALL, "", state, NOON) == (
        PolicyRequested(SAVE, NOON, None),
        RunRequested(SAVE, NOON, All(because="asked for by key")),
    )
    assert events_of(Action.CANCEL, "", state, NOON) == (CancelRequested(SAVE, NOON),)
    assert events_of(Action.KILL, "", state, NOON) == (CancelRequested(SAVE, NOON, is_kill=True),)
    assert events_of(Action.PAUSE, "", state, NOON) == (PauseRequested(SAVE, NOON),)
    paused = story.on(PauseRequested(SAVE, NOON)).state
    assert events_of(Action.PAUSE, "", paused, NOON) == (ResumeRequested(SAVE, NOON),)
    assert events_of(Action.OUTPUT, "", state, NOON) == ()


def test_failed_only_is_a_switch() -> None:
    story = Story().run("t1", failed(A), passed(B))
    on = events_of(Action.FAILED, "", story.state, NOON)
    run = RunRequested(SAVE, NOON, Only((A,), because="1 known to fail"))
    assert on == (PolicyRequested(SAVE, NOON, Policy.FAILED), run)
    story.on(on[0])
    assert story.state.top.effective_policy is Policy.FAILED
    off = events_of(Action.FAILED, "", story.state, NOON)
    assert off == (PolicyRequested(SAVE, NOON, None),)
    assert story.on(off[0]).state.top.effective_policy is story.state.top.policy


def test_rerun_is_the_last_tests_again_or_those_that_a_filter_names() -> None:
    story = Story()
    assert events_of(Action.RERUN, "", story.state, NOON) == (RunRequested(SAVE, NOON, None),)
    story.run("t1", failed(A), passed(B))
    assert events_of(Action.RERUN, "", story.state, NOON) == (
        RunRequested(SAVE, NOON, All(because="all tests again, on request")),
    )
    story.on(RunRequested(SAVE, NOON, Only((A,), because="asked for by name")))
    (event,) = events_of(Action.RERUN, "", story.state, NOON)
    assert event == RunRequested(SAVE, NOON, Only((A,), because="the last tests again, on request"))
    (event,) = events_of(Action.RERUN, "test_b", story.state, NOON)
    assert event == RunRequested(SAVE, NOON, Only((B,), because="on request: names with 'test_b'"))
    assert events_of(Action.RERUN, "nothing", story.state, NOON) == ()


@pytest.mark.parametrize(
    ("action", "name_filter", "screen", "requests"),
    [
        (Action.ALL, "", {}, [("/policy", {"policy": "configured"}), ("/runs", {"policy": "all"})]),
        (Action.FAILED, "", {"red": 1}, [("/policy", {"policy": "failed"}), ("/runs", {"policy": "failed"})]),
        (Action.FAILED, "", {"red": 0}, [("/policy", {"policy": "failed"})]),
        (Action.FAILED, "", {"override": "failed", "red": 1}, [("/policy", {"policy": "configured"})]),
        (Action.RERUN, "", {}, [("/runs", {"again": True})]),
        (Action.RERUN, "test_b", {}, [("/runs", {"matching": "test_b"})]),
        (Action.CANCEL, "", {}, [("/runs/current/cancel", None)]),
        (Action.KILL, "", {}, [("/runs/current/kill", None)]),
        (Action.PAUSE, "", {"lane": "save"}, [("/pause", {"lane": "save"})]),
        (Action.PAUSE, "", {"lane": "save", "paused": True}, [("/resume", {"lane": "save"})]),
        (Action.QUIT, "", {}, []),
    ],
)
def test_an_action_becomes_requests_to_a_watcher_elsewhere(
    action: Action, name_filter: str, screen: dict[str, object], requests: list[ApiRequest]
) -> None:
    assert requests_of(action, name_filter, screen) == requests


def test_both_kinds_of_watcher_perform_the_same_actions() -> None:
    state = Story().run("t1", failed(A), passed(B)).state
    for action in set(Action) - {Action.QUIT}:  # which only ends an attached dashboard
        assert bool(events_of(action, "", state, NOON)) == bool(requests_of(action, "", {"red": 1}))
