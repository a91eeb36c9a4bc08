"""Notifications over a real bus to a test daemon: replaced in place, escaped, and robust against restarts."""

from __future__ import annotations

import asyncio
import gc
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.session_bus import FakeDaemon, session_bus

from watchtest.config import Config, Project
from watchtest.core.model import Lane, Verdict
from watchtest.views.notify.dbus_channel import DbusChannel
from watchtest.views.notify.dbus_channel import session_bus as found_bus
from watchtest.views.notify.notifications import DeliveryFailed, Notification, NotificationKind
from watchtest.views.notify.notifier import describe_channels
from watchtest.workspace.user_dirs import UserDirs

RED = Notification(NotificationKind.RED, "✘ shop: 1 test failed", ("test[<b>&x]", "second"), Lane.SAVE, Verdict.FAILED)
GREEN = Notification(NotificationKind.GREEN, "✔ shop: green again", ("2 tests",), Lane.SAVE, Verdict.PASSED)
LIMIT_S = 20.0

pytestmark = pytest.mark.desktop


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wt-bus-") as name:
        yield Path(name)


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    with session_bus(folder) as address:
        yield address


def channel_to(address: str) -> DbusChannel:
    return DbusChannel({"DBUS_SESSION_BUS_ADDRESS": address})


@pytest.mark.dbus
def test_one_notification_is_replaced_in_place_and_withdrawn(address: str) -> None:
    async def story() -> None:
        channel = channel_to(address)
        async with FakeDaemon(address) as daemon:
            await channel.deliver(RED)
            await channel.deliver(GREEN)
            assert daemon.standing == {1: GREEN.title}
            await channel.withdraw()
            assert daemon.standing == {}
            await channel.withdraw()
            await channel.close()
        red, green = daemon.calls
        assert (red[0], red[1], green[1]) == ("watchtest", 0, 1)

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


@pytest.mark.dbus
def test_markup_is_escaped_a_click_does_nothing_and_red_is_more_urgent_than_green(address: str) -> None:
    async def story() -> None:
        channel = channel_to(address)
        async with FakeDaemon(address) as daemon:
            await channel.deliver(RED)
            await channel.deliver(GREEN)
            await channel.close()
        [_, _, _, title, body, actions, hints, expires], green = daemon.calls
        assert (title, body) == (RED.title, "test[&lt;b&gt;&amp;x]\nsecond")
        assert (actions, expires) == ([], -1)
        assert (hints["urgency"].value, green[6]["urgency"].value) == (1, 0)
        assert (hints["transient"].value, green[6]["transient"].value) == (False, True)

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


@pytest.mark.dbus
def test_a_daemon_without_markup_gets_plain_text_and_gnome_a_green_that_it_shows(address: str) -> None:
    async def story() -> None:
        channel = channel_to(address)
        async with FakeDaemon(address, name="gnome-shell", capabilities=("body",)) as daemon:
            await channel.deliver(RED)
            await channel.deliver(GREEN)
        assert daemon.calls[0][4] == "test[<b>&x]\nsecond"
        assert daemon.calls[1][6]["urgency"].value == 1
        async with FakeDaemon(address, capabilities=()) as daemon:
            await channel.deliver(GREEN)
            await channel.close()
        assert daemon.calls[0][3:5] == ["✔ shop: green again: 2 tests", ""]

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


@pytest.mark.dbus
def test_after_a_restart_of_the_daemon_we_replace_no_notification_of_another_program(address: str) -> None:
    async def story() -> None:
        channel = channel_to(address)
        async with FakeDaemon(address):
            await channel.deliver(RED)
        async with FakeDaemon(address, standing={1: "mail"}) as daemon:
            await channel.deliver(GREEN)
            assert daemon.standing == {1: "mail", 2: GREEN.title}
        async with FakeDaemon(address, standing={2: "mail"}) as daemon:
            await channel.withdraw()
            assert daemon.standing == {2: "mail"}
            await channel.close()

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


@pytest.mark.dbus
def test_a_bus_that_dies_and_comes_back_is_used_again(folder: Path) -> None:
    async def story() -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
        with session_bus(folder) as address:
            channel = channel_to(address)
            first = await FakeDaemon(address).__aenter__()
            await channel.deliver(RED)
        with pytest.raises(DeliveryFailed, match=r"no session bus at unix:path=.*: (Connection refused|No such file)"):
            await channel.deliver(RED)
        await first.__aexit__(None, None, None)
        (folder / "bus").unlink(missing_ok=True)
        with session_bus(folder) as address:
            async with FakeDaemon(address, first=7) as daemon:
                await channel.deliver(GREEN)
                assert daemon.standing == {7: GREEN.title}
            await channel.close()
        del first
        gc.collect()  # exceptions that were never retrieved are reported on collection
        assert complaints == []

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


@pytest.mark.dbus
def test_a_daemon_that_never_answers_is_dropped_and_asked_again(address: str) -> None:
    async def story() -> None:
        channel = channel_to(address)
        async with FakeDaemon(address, is_mute=True) as daemon:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(channel.deliver(RED), 0.3)
            daemon.is_mute = False
            await channel.deliver(GREEN)
            assert daemon.standing == {1: GREEN.title}
            await channel.close()

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


@pytest.mark.dbus
def test_a_bus_that_dies_in_the_middle_of_a_call_fails_it_at_once(folder: Path) -> None:
    async def story() -> None:
        with session_bus(folder) as address:
            channel = channel_to(address)
            daemon = await FakeDaemon(address, is_mute=True).__aenter__()
            delivery = asyncio.create_task(channel.deliver(RED))
            await daemon.asked.wait()
        with pytest.raises(DeliveryFailed, match=r"lost the session bus|reset by peer"):
            await delivery
        await daemon.__aexit__(None, None, None)
        await channel.close()

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


@pytest.mark.dbus
def test_a_refusal_and_a_bus_without_a_daemon_are_told_in_its_own_words(address: str) -> None:
    async def story() -> None:
        channel = channel_to(address)
        with pytest.raises(DeliveryFailed, match=r"org\.freedesktop\.Notifications"):
            await channel.deliver(RED)
        async with FakeDaemon(address, refusal="too many of them"):
            with pytest.raises(DeliveryFailed, match="too many of them"):
                await channel.deliver(RED)
        await channel.close()

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


@pytest.mark.dbus
def test_doctor_tells_who_would_show_a_notification_and_shows_none(address: str) -> None:
    async def story() -> None:
        project = Project(
            Path("/shop"),
            Config(),
            {"DBUS_SESSION_BUS_ADDRESS": address, "TERM": "xterm"},
            UserDirs(Path("/cache"), Path("/state")),
        )
        [(shown, why)] = await describe_channels(project, io.StringIO())
        assert (shown, "org.freedesktop.Notifications" in why) == ("", True)
        async with FakeDaemon(address, name="wall\x1b[31mpaper") as daemon:
            assert await describe_channels(project, io.StringIO()) == [("on the desktop, by wallpaper", "")]
        assert daemon.calls == []

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


def test_the_bus_is_found_where_the_session_says_or_where_systemd_puts_it(folder: Path) -> None:
    runtime = folder / "run ~1"
    runtime.mkdir()
    (runtime / "bus").touch()
    assert found_bus({"DBUS_SESSION_BUS_ADDRESS": "unix:abstract=x", "XDG_RUNTIME_DIR": str(runtime)}) == (
        "unix:abstract=x"
    )
    assert found_bus({"XDG_RUNTIME_DIR": str(runtime)}) == f"unix:path={folder}/run%20%7E1/bus"
    for environ in ({}, {"XDG_RUNTIME_DIR": str(folder)}, {"DBUS_SESSION_BUS_ADDRESS": ""}):
        with pytest.raises(DeliveryFailed, match="DBUS_SESSION_BUS_ADDRESS is not set"):
            found_bus(environ)
