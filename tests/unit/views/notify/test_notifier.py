"""Delivery never raises or delays, and its failure is shown once. Bus and terminal are real, or really absent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.watcher_process import wait_for
from support.watcher_states import NOON, Story, failed, passed

from watchtest.views.notify.dbus_channel import DbusChannel
from watchtest.views.notify.hook import Hook
from watchtest.views.notify.native_channel import NativeChannel
from watchtest.views.notify.notifications import (
    DeliveryFailed,
    Notification,
    NotificationChannel,
    NotifyMode,
    QuietHours,
)
from watchtest.views.notify.notifier import Notifier, NotifyChannels, NotifyRules
from watchtest.views.notify.terminal_channel import TerminalAccess, TerminalChannel, TerminalMethod

A, B = (f"tests/test_a.py::test_{name}" for name in "ab")
RED, GREEN = "✘ shop: 1 test failed", "✔ shop: green again"
NO_BUS = "no session bus (DBUS_SESSION_BUS_ADDRESS is not set)"


class Wall:
    """A desktop that records what it receives, after `delay_s`, or rejects it."""

    def __init__(self, *, delay_s: float = 0.0, refusal: str = "") -> None:
        self.delay_s = delay_s
        self.refusal = refusal
        self.shown: list[str] = []
        self.is_closed = False

    async def describe(self) -> str:
        return "a wall"

    async def deliver(self, notice: Notification) -> None:
        await asyncio.sleep(self.delay_s)
        if self.refusal:
            raise DeliveryFailed(self.refusal)
        self.shown.append(notice.title)

    async def withdraw(self) -> None:
        await asyncio.sleep(self.delay_s)
        self.shown.append("withdrawn")

    async def close(self) -> None:
        self.is_closed = True


def notifier(
    desktop: NotificationChannel | None = None,
    *,
    terminal: TerminalChannel | None = None,
    hook: Hook | None = None,
    delivery_s: float = 5.0,
    say: Callable[[str], None] = pytest.fail,
    when: NotifyRules | None = None,
) -> Notifier:
    return Notifier("shop", NotifyChannels(desktop, terminal, hook, delivery_s), say, when or NotifyRules())


def bell(written: list[str]) -> TerminalChannel:
    return TerminalChannel(TerminalAccess(written.append), {}, "/shop", TerminalMethod.BELL)


async def play(
    story: Story, teller: Notifier, between_s: float = 0.0, until: Callable[[], bool] = lambda: True
) -> None:
    """Show every state of a story, and leave when `until` is true."""
    async with teller:
        for _, after, event in story.steps:
            teller.show(after, event.at)
            await asyncio.sleep(between_s)
        await asyncio.to_thread(wait_for, "what the test waits for", until)


def test_a_notice_is_delivered_before_leaving_and_red_is_taken_back_by_then() -> None:
    wall = Wall(delay_s=0.05)
    asyncio.run(play(Story().run("t1", failed(A)), notifier(wall)))
    assert wall.shown == [RED, "withdrawn"]
    assert wall.is_closed


def test_a_green_notice_is_left_to_stand() -> None:
    wall = Wall()
    asyncio.run(play(Story().run("t1", failed(A)).run("t2", passed(A)), notifier(wall), 0.001))
    assert wall.shown == [RED, GREEN]


def test_what_was_not_sent_in_time_is_replaced_by_what_is_true_now() -> None:
    wall = Wall(delay_s=0.05)
    story = Story().run("t1", failed(A)).run("t2", passed(A)).run("t3", failed(A)).run("t4", passed(A))
    asyncio.run(play(story, notifier(wall)))
    assert wall.shown == [RED, GREEN]


def test_where_failures_alone_are_told_green_takes_the_red_notice_away() -> None:
    wall = Wall()
    story = Story().run("t1", failed(A)).run("t2", passed(A))
    asyncio.run(play(story, notifier(wall, when=NotifyRules(NotifyMode.FAILURES)), 0.001))
    assert wall.shown == [RED, "withdrawn"]


def test_a_refusal_is_reported_once_and_each_notice_reaches_the_terminal() -> None:
    problems: list[str] = []
    written: list[str] = []
    story = Story().run("t1", failed(A)).run("t2", passed(A))
    wall = Wall(refusal="no such daemon")
    asyncio.run(play(story, notifier(wall, terminal=bell(written), say=problems.append), 0.001))
    assert problems == ["desktop notifications are unavailable (no such daemon); using the terminal bell"]
    assert written == ["\a", "\a"]


def test_a_show_does_not_wait_for_what_is_under_way() -> None:
    async def story() -> None:
        wall = Wall(delay_s=60)
        async with notifier(wall, when=NotifyRules(NotifyMode.ALL)) as teller:
            for _, after, event in Story().run("t1", failed(A)).run("t2", passed(A)).steps:
                teller.show(after, event.at)
                await asyncio.sleep(0)
            assert wall.shown == []

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_desktop_that_works_leaves_the_terminal_alone() -> None:
    written: list[str] = []
    asyncio.run(play(Story().run("t1", failed(A)), notifier(Wall(), terminal=bell(written))))
    assert written == []


def test_a_desktop_that_hangs_is_given_up() -> None:
    problems: list[str] = []
    teller = notifier(Wall(delay_s=60), delivery_s=0.1, say=problems.append)
    asyncio.run(play(Story().run("t1", failed(A)), teller))
    assert problems == ["desktop notifications are unavailable (no answer within 0.1 s)"]


def test_without_a_bus_the_failure_is_one_line_and_nothing_is_logged(capfd: pytest.CaptureFixture[str]) -> None:
    problems: list[str] = []
    written: list[str] = []
    story = Story().run("t1", failed(A)).run("t2", passed(A)).run("t3", failed(A))
    teller = notifier(DbusChannel({}), terminal=bell(written), say=problems.append)
    asyncio.run(play(story, teller, 0.01))
    assert problems == [f"desktop notifications are unavailable ({NO_BUS}); using the terminal bell"]
    assert written == ["\a"] * 3
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("address", ["unix:path=/nonexistent/bus", "nonsense", "carrier:pigeon=1", "unix:path=/\x00"])
def test_an_address_where_no_bus_is_fails_in_one_line(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    problems: list[str] = []
    teller = notifier(DbusChannel({"DBUS_SESSION_BUS_ADDRESS": address}), say=problems.append)
    asyncio.run(play(Story().run("t1", failed(A)), teller))
    [problem] = problems
    assert problem.startswith("desktop notifications are unavailable (")
    assert problem.isprintable()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("channel", [DbusChannel, NativeChannel])
def test_a_bus_that_never_answers_does_not_hang(
    channel: Callable[..., NotificationChannel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems: list[str] = []
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "bus"))
        mute.listen()
        environ = {"DBUS_SESSION_BUS_ADDRESS": f"unix:path={tmp_path / 'bus'}"}
        monkeypatch.setenv(*next(iter(environ.items())))
        way = channel(environ) if channel is DbusChannel else channel()
        teller = notifier(way, delivery_s=0.3, say=problems.append)
        asyncio.run(play(Story().run("t1", failed(A)), teller))
    assert problems == ["desktop notifications are unavailable (no answer within 0.3 s)"]


def test_a_native_desktop_that_cannot_be_reached_says_why(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")
    problems: list[str] = []
    asyncio.run(play(Story().run("t1", failed(A)), notifier(NativeChannel(), say=problems.append)))
    assert len(problems) == 1
    assert capfd.readouterr() == ("", "")


# -- quiet hours -----------------------------------------------------------------------------------


MORNING = NOON + 9 * 3600
NIGHT = NotifyRules(quiet=QuietHours.parse("22:00-07:00"), local=time.gmtime)
"""NOON of the stories is 22:13 in UTC."""


def quietly(story: Story, wall: Wall) -> None:
    async def night() -> None:
        async with notifier(wall, when=NIGHT) as teller:
            for _, after, event in story.steps:
                teller.show(after, event.at)
                teller.tick(event.at)
                await asyncio.sleep(0.001)
            assert wall.shown == []
            teller.tick(MORNING)
            teller.tick(MORNING + 1)
            await asyncio.sleep(0.01)

    asyncio.run(night())


def test_what_quiet_hours_have_changed_is_told_once_at_their_end() -> None:
    wall = Wall()
    story = Story().run("t1", passed(A), passed(B)).run("t2", failed(A), passed(B)).run("t3", failed(A), failed(B))
    quietly(story, wall)
    assert wall.shown == ["✘ shop: 2 tests failed", "withdrawn"]


def test_quiet_hours_that_changed_nothing_end_in_silence() -> None:
    wall = Wall()
    story = Story().run("t1", passed(A)).run("t2", failed(A)).run("t3", passed(A))
    quietly(story, wall)
    assert wall.shown == []


# -- the hook --------------------------------------------------------------------------------------


def test_the_hook_gets_every_notice_as_json(tmp_path: Path) -> None:
    hook = Hook(("sh", "-c", 'cat >> "$1"', "hook", "told"), tmp_path, {"PATH": "/usr/bin:/bin"})
    story = Story().run("t1", failed(A)).run("t2", passed(A))
    asyncio.run(play(story, notifier(hook=hook), 0.001))
    red, green = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert red == {
        "schema": "watchtest.notice",
        "schema_version": 1,
        "at": red["at"],
        "kind": "red",
        "title": RED,
        "text": A,
        "workspace": str(tmp_path),
        "lane": "save",
        "verdict": "failed",
        "run_id": story.steps[1][1].top.activity.run.id,  # type: ignore[union-attr]
        "tree": "t1",
        "tests": [A],
        "tests_total": 1,
        "red_total": 1,
    }
    assert red["at"].startswith("2023-11-14T22:13:2")
    assert red["at"].endswith("Z")
    assert (green["kind"], green["verdict"], green["tests"], green["red_total"]) == ("green", "passed", [], 0)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("echo no; echo 'out of\x1b[31m paper' >&2; exit 3", "exit code 3: out of paper"),
        (("no-such-program",), "cannot start it: [Errno 2] No such file or directory: 'no-such-program'"),
        ("exit 1", "exit code 1"),
        ("kill -9 $$", "exit code -9"),
    ],
)
def test_a_hook_that_fails_is_said_once(command: str | tuple[str, ...], problem: str, tmp_path: Path) -> None:
    problems: list[str] = []
    hook = Hook(command, tmp_path, {"PATH": "/usr/bin:/bin"})
    story = Story().run("t1", failed(A)).run("t2", passed(A))
    asyncio.run(play(story, notifier(hook=hook, say=problems.append)))
    assert problems == [f"notify.hook failed: {problem}"]


def test_a_hook_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    problems: list[str] = []
    hook = Hook("(sleep 60; touch late) & echo $! > child; wait", tmp_path, {"PATH": "/usr/bin:/bin"}, limit_s=2)
    teller = notifier(hook=hook, say=problems.append)
    asyncio.run(play(Story().run("t1", failed(A)), teller, until=lambda: bool(problems)))
    assert problems == ["notify.hook failed: timed out after 2 s"]
    child = int((tmp_path / "child").read_text())
    state = Path(f"/proc/{child}/stat")
    wait_for("the end of the child", lambda: not state.exists() or ") Z " in state.read_text())


def test_a_hook_that_reads_nothing_and_leaves_something_running_is_no_failure(tmp_path: Path) -> None:
    hook = Hook("sleep 20 & echo $! > child", tmp_path, {"PATH": "/usr/bin:/bin"})
    asyncio.run(play(Story().run("t1", failed(A)), notifier(hook=hook)))
    child = int((tmp_path / "child").read_text())
    assert Path(f"/proc/{child}").exists()
    os.kill(child, signal.SIGKILL)


def test_leaving_does_not_wait_for_a_hook_that_hangs(tmp_path: Path) -> None:
    hook = Hook("exec sleep 60", tmp_path, {"PATH": "/usr/bin:/bin"})
    began = time.perf_counter()
    asyncio.run(play(Story().run("t1", failed(A)), notifier(hook=hook)))
    assert time.perf_counter() - began < 30
