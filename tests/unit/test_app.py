"""Which signals end a watcher, and when there is a screen to draw on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest

from watchtest.app import leaving_signals
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
