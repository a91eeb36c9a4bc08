"""Notifications outside the screen: with dunst on a real screen, and without any desktop."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import socket
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus
from support.session_bus import NAME, PATH, session_bus
from support.watcher_process import Project, Watcher, wait_for

LIMIT_S = 20.0
DUNST_NAME = "org.dunstproject.cmd0"
SHOP = "VALUE = {value}\n"
FIRST = "import shop\n\ndef test_a_value():\n    assert shop.VALUE == 1\n"
GATED = """import time
from pathlib import Path

import shop

def test_gate():
    time.sleep(0.2)  # the quick one goes first
    Path({arrived!r}).touch()
    while not Path({gate!r}).exists():
        time.sleep(0.01)
"""
DUNST = """[global]
    monitor = 0
    font = Monospace 10
    width = 460
    notification_limit = 20
    sticky_history = yes
    history_length = 50
    always_run_script = true
    show_age_threshold = -1
    icon_position = off
[everything]
    summary = "*"
    script = {script}
"""
SCRIPT = """#!/bin/sh
body=$(printf %s "$DUNST_BODY" | tr '\\n' ' ')
printf '%s|%s|%s|%s\\n' "$DUNST_ID" "$DUNST_URGENCY" "$DUNST_SUMMARY" "$body" >> {log}
"""


@pytest.fixture(params=["local"])
def kind(request: pytest.FixtureRequest) -> str:
    """Notifications do not depend on the kind of box."""
    return str(request.param)


@dataclass
class Desk:
    """A screen with dunst running on it."""

    environ: dict[str, str]
    log: Path

    @property
    def shown(self) -> list[str]:
        """Return everything that dunst has ever shown, each as `id|urgency|title|text`."""
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []

    def standing(self) -> int:
        [length] = self.ask("org.freedesktop.DBus.Properties", "Get", "ss", [DUNST_NAME, "displayedLength"])
        return int(length.value)

    def history(self) -> list[str]:
        """Return the titles that are no longer shown, oldest first, as dunst reports them."""
        [notifications] = self.ask(DUNST_NAME, "NotificationListHistory")
        return [str(one["summary"].value) for one in reversed(notifications)]

    def close_all(self) -> None:
        self.ask(DUNST_NAME, "NotificationCloseAll")

    def ask(self, interface: str, member: str, signature: str = "", body: list[Any] | None = None) -> list[Any]:
        """Ask what `dunstctl` would ask; dunstctl itself needs programs that are not installed everywhere."""

        async def ask() -> Message:
            bus = await MessageBus(bus_address=self.environ["DBUS_SESSION_BUS_ADDRESS"]).connect()
            message = Message(NAME, PATH, interface, member, signature=signature, body=body or [])
            answer = await bus.call(message)
            bus.disconnect()
            await bus.wait_for_disconnect()
            assert answer is not None
            return answer

        answer = asyncio.run(asyncio.wait_for(ask(), LIMIT_S))
        if answer.message_type is MessageType.ERROR:
            raise LookupError(answer.error_name, *answer.body)
        return list(answer.body)


@pytest.fixture
def desk() -> Iterator[Desk]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wt-desk-")))
        display = stack.enter_context(_screen(folder))
        address = stack.enter_context(session_bus(folder))
        log, script, config = folder / "log", folder / "script", folder / "dunstrc"
        script.write_text(SCRIPT.format(log=log))
        script.chmod(0o755)
        config.write_text(DUNST.format(script=script))
        environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8"}
        environ |= {"DISPLAY": display, "DBUS_SESSION_BUS_ADDRESS": address}
        stack.enter_context(_running(["dunst", "-conf", str(config)], folder / "dunst.err", environ))
        desk = Desk(environ, log)
        try:
            wait_for("dunst answers", lambda: _answers(desk), LIMIT_S)
        except AssertionError:
            print(*(file.read_text() for file in folder.glob("*.err")), sep="\n")
            raise
        yield desk


@contextmanager
def _screen(folder: Path) -> Iterator[str]:
    ours, theirs = os.pipe()
    command = ["Xvfb", "-displayfd", str(theirs), "-screen", "0", "800x400x24", "-nolisten", "tcp"]
    with _running(command, folder / "screen.err", dict(os.environ), (theirs,)):
        os.close(theirs)
        assert select.select([ours], [], [], LIMIT_S)[0], "the screen does not start"
        with os.fdopen(ours) as stream:  # Xvfb writes its number in pieces, so read to the end of the line
            number = stream.readline().strip()
        yield f":{number}"


@contextmanager
def _running(command: list[str], errors: Path, environ: dict[str, str], fds: tuple[int, ...] = ()) -> Iterator[None]:
    with errors.open("wb") as stream, subprocess.Popen(command, env=environ, stderr=stream, pass_fds=fds) as process:
        try:
            yield
        finally:
            process.kill()


def _answers(desk: Desk) -> bool:
    try:
        return desk.standing() == 0
    except LookupError:
        return False


@dataclass
class Scene:
    project: Project
    watcher: Watcher

    def save(self, value: int, verdict: str) -> None:
        self.project.save("shop.py", SHOP.format(value=value))
        self.watcher.wait_for_verdict(verdict)

    def save_twice_in_one_run(self) -> None:
        """The first save is already red, and a green one supersedes it before its run ends."""
        gate, arrived = self.project.around / "gate", self.project.around / "arrived"
        gate.unlink()
        arrived.unlink(missing_ok=True)
        self.project.save("shop.py", SHOP.format(value=2))
        self.watcher.wait_until("a run stands at the gate", arrived.exists)
        self.watcher.wait_for_words("FAILED test_a.py::test_a_value")
        self.project.save("shop.py", SHOP.format(value=1))
        self.watcher.wait_for_words("superseded")
        gate.touch()
        self.watcher.wait_for_verdict("passed")


def play(project: Project, environ: dict[str, str]) -> Scene:
    gate = project.around / "gate"
    gate.touch()
    project.save("shop.py", SHOP.format(value=1))
    project.save("test_a.py", FIRST)
    project.save("test_b.py", GATED.format(gate=str(gate), arrived=str(project.around / "arrived")))
    scene = Scene(project, project.watch(env={"WATCHTEST_NOTIFY_DESKTOP": "true", **environ}))
    scene.watcher.wait_for_verdict("passed")
    return scene


@pytest.mark.desktop
def test_dunst_shows_red_and_green_once_each_in_one_place_and_nothing_of_a_superseded_run(
    project: Project, desk: Desk
) -> None:
    scene = play(project, {"DBUS_SESSION_BUS_ADDRESS": desk.environ["DBUS_SESSION_BUS_ADDRESS"]})
    scene.save_twice_in_one_run()
    assert desk.shown == []
    scene.save(2, "failed")
    wait_for("red is shown", lambda: len(desk.shown) == 1)
    assert desk.standing() == 1
    scene.save(1, "passed")
    wait_for("green is shown", lambda: len(desk.shown) == 2)
    assert desk.standing() == 1, "in the place of the red one"
    red, green = desk.shown
    number = red.partition("|")[0]
    assert red == f"{number}|NORMAL|✘ my pröject: 1 test failed|test_a.py::test_a_value"
    assert green == f"{number}|LOW|✔ my pröject: green again|2 tests"
    desk.close_all()
    scene.save(2, "failed")
    wait_for("red is shown again", lambda: len(desk.shown) == 3)
    assert scene.watcher.stop() == 0
    wait_for("nothing red is left behind", lambda: desk.standing() == 0)
    assert desk.history() == ["✔ my pröject: green again", "✘ my pröject: 1 test failed"]
    scene.watcher.must_be_tidy()


NO_DESKTOP = {"DBUS_SESSION_BUS_ADDRESS": "", "DISPLAY": ""}
INSTEAD = "attached terminals show them"
COMPLAINT = "desktop notifications are unavailable ("
NO_BUS = "no session bus (DBUS_SESSION_BUS_ADDRESS is not set)"


def red_green_red(scene: Scene) -> None:
    for value, verdict in ((2, "failed"), (1, "passed"), (3, "failed")):
        scene.save(value, verdict)


def test_without_a_bus_a_log_has_one_line_and_no_bell(project: Project) -> None:
    scene = play(project, NO_DESKTOP)
    red_green_red(scene)
    scene.watcher.wait_for_words(COMPLAINT)
    assert scene.watcher.stop() == 0
    assert scene.watcher.said.count(COMPLAINT) == 1
    assert f"{COMPLAINT}{NO_BUS}); {INSTEAD}\n" in scene.watcher.output
    assert not {"\a", "\x1b"} & set(scene.watcher.said)
    scene.watcher.must_be_tidy()


def test_a_bus_that_hangs_delays_no_verdict_and_is_one_line(project: Project) -> None:
    with tempfile.TemporaryDirectory(prefix="wt-mute-") as folder, socket.socket(socket.AF_UNIX) as mute:
        mute.bind(f"{folder}/bus")
        mute.listen()
        scene = play(project, {"DBUS_SESSION_BUS_ADDRESS": f"unix:path={folder}/bus"})
        scene.save(2, "failed")
        assert COMPLAINT not in scene.watcher.said, "the verdict is there although the notification hangs"
        red_green_red(scene)
        scene.watcher.wait_for_words(COMPLAINT)
        assert scene.watcher.stop() == 0
    assert f"{COMPLAINT}no answer within 4 s); {INSTEAD}\n" in scene.watcher.output
    assert scene.watcher.said.count(COMPLAINT) == 1
    scene.watcher.must_be_tidy()


def test_without_a_bus_the_dashboard_has_one_line_and_its_terminal_rings(project: Project) -> None:
    project.save("shop.py", SHOP.format(value=2))
    project.save("test_a.py", FIRST)
    environ = {**project.environ, "WATCHTEST_NOTIFY_DESKTOP": "true", **NO_DESKTOP, "TERM": "xterm-256color"}
    for name in ("TMUX", "TERM_PROGRAM", "VTE_VERSION"):
        environ.pop(name, None)
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 240))
    command = [sys.executable, "-m", "watchtest", "watch", "--engine", "local"]
    seen = b""
    with subprocess.Popen(
        command, cwd=project.root, env=environ, stdin=theirs, stdout=theirs, stderr=theirs
    ) as watcher:
        try:
            os.close(theirs)
            deadline = time.monotonic() + 2 * LIMIT_S
            while not (b"\a" in seen and f"{COMPLAINT}{NO_BUS}".encode() in seen):
                assert time.monotonic() < deadline, seen[-3000:]
                if select.select([ours], [], [], 0.1)[0]:
                    seen += os.read(ours, 65536)
            watcher.terminate()
            while watcher.poll() is None:
                assert time.monotonic() < deadline, seen[-3000:]
                if select.select([ours], [], [], 0.1)[0]:
                    try:
                        seen += os.read(ours, 65536)
                    except OSError:  # the last process at the other end is gone
                        break
        finally:
            watcher.kill()
            os.close(ours)
    assert seen.count(b"\a") == 1
    assert b"using the terminal bell" in seen
    assert b"Traceback" not in seen
