"""Delivery never raises, never delays, and its failure is said once. The bus is real, or really absent."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import pytest
from view_states import Story, failed, passed

from watchtest.views.desktop import DeliveryFailed, Desktop, DesktopNotifierChannel, Notice

A = "tests/test_a.py::test_a"


class Wall:
    """A desktop that keeps what reaches it, after `delay_s`, or refuses it."""

    def __init__(self, *, delay_s: float = 0.0, refusal: str = "") -> None:
        self.delay_s = delay_s
        self.refusal = refusal
        self.shown: list[Notice] = []

    async def deliver(self, notice: Notice) -> None:
        await asyncio.sleep(self.delay_s)
        if self.refusal:
            raise DeliveryFailed(self.refusal)
        self.shown.append(notice)

    async def close(self) -> None:
        pass


async def play(story: Story, desktop: Desktop) -> float:
    """Show every state of a story, one delivery at a time; the longest time that `show` took."""
    longest = 0.0
    async with desktop:
        for _, after, _ in story.steps:
            began = time.perf_counter()
            desktop.show(after)
            longest = max(longest, time.perf_counter() - began)
            await asyncio.sleep(0)
    return longest


def test_a_notice_is_delivered_before_leaving() -> None:
    wall = Wall(delay_s=0.05)
    asyncio.run(play(Story().run("t1", failed(A)), Desktop("shop", pytest.fail, wall)))
    assert [notice.title for notice in wall.shown] == ["watchtest: 1 test red"]


def test_what_was_not_sent_in_time_is_replaced_by_what_is_true_now() -> None:
    wall = Wall(delay_s=0.05)
    story = Story().run("t1", failed(A)).run("t2", passed(A)).run("t3", failed(A)).run("t4", passed(A))
    asyncio.run(play(story, Desktop("shop", pytest.fail, wall)))
    assert [notice.title for notice in wall.shown] == ["watchtest: 1 test red", "watchtest: green again"]


def test_a_refusal_is_reported_once() -> None:
    problems: list[str] = []
    story = Story().run("t1", failed(A)).run("t2", passed(A))
    asyncio.run(play(story, Desktop("shop", problems.append, Wall(refusal="no such daemon"))))
    assert problems == ["desktop notifications do not work here: no such daemon; this is said once"]


def test_a_desktop_that_hangs_is_given_up_and_delays_nothing() -> None:
    problems: list[str] = []
    desktop = Desktop("shop", problems.append, Wall(delay_s=60), delivery_s=0.1)
    began = time.perf_counter()
    assert asyncio.run(play(Story().run("t1", failed(A)), desktop)) < 0.05
    assert time.perf_counter() - began < 5
    assert problems == ["desktop notifications do not work here: no answer within 0.1 s; this is said once"]


@pytest.mark.parametrize("address", ["", "unix:path=/nonexistent/bus"])
def test_without_a_bus_the_failure_is_one_line_and_nothing_is_logged(
    address: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    with pytest.raises(DeliveryFailed) as failure:
        asyncio.run(DesktopNotifierChannel().deliver(Notice("watchtest: 1 test red", A, True)))
    assert str(failure.value)
    assert capfd.readouterr() == ("", "")


def test_a_bus_that_never_answers_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[str] = []
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "bus"))
        mute.listen()
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path / 'bus'}")
        desktop = Desktop("shop", problems.append, DesktopNotifierChannel(), delivery_s=0.3)
        assert asyncio.run(play(Story().run("t1", failed(A)), desktop)) < 0.05
    assert len(problems) == 1
