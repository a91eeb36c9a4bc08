"""Which signals end a watcher, with which exit code, and when there is a screen to draw on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest
from support.watcher_states import Story, failed, passed, start

from watchtest.app import exit_code, leaving_signals
from watchtest.core.events import RunRequested
from watchtest.core.model import Lane, Only
from watchtest.core.step import leave
from watchtest.views.dashboard.dashboard import has_screen

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")


@pytest.fixture
def nohup() -> Iterator[None]:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_watcher_ends_with_its_terminal() -> None:
    assert set(leaving_signals()) == {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@pytest.mark.usefixtures("nohup")
def test_under_nohup_it_outlives_its_terminal() -> None:
    assert set(leaving_signals()) == {signal.SIGINT, signal.SIGTERM}


def test_a_terminal_that_cannot_be_drawn_on_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert has_screen({"TERM": "xterm"})
    assert not has_screen({"TERM": "dumb"})  # rich draws nothing at all there


def test_once_ends_with_0_only_if_all_tests_passed_on_the_code_as_it_is() -> None:
    def code(story: Story) -> int:
        return exit_code(leave(story.state), once=True)

    a, b = "a.py::one", "a.py::two"
    green = Story(start(once=True)).run("t1", passed(a), passed(b))
    assert code(green) == 0
    assert code(Story().run("t1", passed(a), failed(b))) == 1
    assert code(Story().run("t1")) == 5
    assert code(Story().run("t1", passed(a)).change("late.py")) == 1
    some = Story().on(RunRequested(Lane.SAVE, 1.0, Only((a,), because="asked for")))
    assert code(some.sync("t1").collect(a).end("t1", [passed(a)])) == 1
