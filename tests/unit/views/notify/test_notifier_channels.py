"""The settings of `[notify]`: their validation, and the channels that follow from them."""

from __future__ import annotations

import asyncio
import io
from datetime import time
from pathlib import Path
from typing import Any

import pytest

from watchtest.config import Config, Project, load
from watchtest.errors import ConfigError
from watchtest.views.notify.dbus_channel import DbusChannel
from watchtest.views.notify.hook import Hook
from watchtest.views.notify.notifications import NotifyMode, QuietHours
from watchtest.views.notify.notifier import Notifier, build_notifier, describe_channels
from watchtest.views.notify.terminal_channel import NotificationRelay, TerminalMethod
from watchtest.workspace.user_dirs import UserDirs


def told(workspace: Path, text: str, **given: Any) -> str:
    (workspace / "watchtest.toml").write_text(text)
    inputs: dict[str, Any] = {"explicit": None, "environ": {}, "user_folder": None, "flags": {}}
    with pytest.raises(ConfigError) as caught:
        load(workspace, **(inputs | given))
    return caught.value.message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('notify.mode = "failure"', 'notify.mode = "failure": no such value; did you mean "failures"?'),
        ('notify.mode = "x"', 'notify.mode = "x": no such value; choose "changes", "failures", "all" or "off"'),
        ('notify.terminal = "osc8"', 'notify.terminal = "osc8": no such value; did you mean "osc9"?'),
        (
            "notify.terminal = true",
            'notify.terminal = true: must be "auto", "bell", "osc9", "osc777", "osc99" or "off"',
        ),
        *(
            (
                f'notify.quiet_hours = "{hours}"',
                f'notify.quiet_hours = "{hours}": must be two times of day, like "22:00-07:00"; "" means never',
            )
            for hours in ("22-7", "22:00", "22:00-24:00", "22:60-07:00", "7:00-8:00", "22:00-22:00", " 22:00-07:00")
        ),
        ("notify.hook = 3", "notify.hook = 3: must be a shell command or a list of arguments"),
        ('notify.hook = ["a", 3]', 'notify.hook[1] = 3: must be text; write "3"'),
        (
            'notify.sound = "x"',
            'notify.sound = "x": unknown key; [notify] has desktop, mode, quiet_hours, terminal, hook',
        ),
    ],
)
def test_a_wrong_value_is_told_with_what_to_write(tmp_path: Path, text: str, line: str) -> None:
    assert told(tmp_path, text).splitlines()[0] == f"watchtest.toml: {line}"


def test_the_user_can_set_a_hook_in_each_way_that_is_the_users_own(tmp_path: Path) -> None:
    home, shop = tmp_path / "home", tmp_path / "shop"
    home.mkdir()
    shop.mkdir()
    (home / "config.toml").write_text('notify.hook = ["say", "it"]')
    (shop / "mine.toml").write_text('notify.hook = "mine"')
    given: dict[str, Any] = {"explicit": None, "environ": {}, "user_folder": home, "flags": {}}
    assert load(shop, **given).config.notify.hook == ("say", "it")
    assert load(shop, **(given | {"environ": {"WATCHTEST_NOTIFY_HOOK": "lamp --red"}})).config.notify.hook == (
        "lamp --red"
    )
    assert load(shop, **(given | {"environ": {"WATCHTEST_NOTIFY_HOOK": "['a', 'b c']"}})).config.notify.hook == (
        "a",
        "b c",
    )
    assert load(shop, **(given | {"explicit": shop / "mine.toml"})).config.notify.hook == "mine"


class Screen(io.StringIO):
    """A stream that may or may not be a terminal."""

    def __init__(self, *, is_terminal: bool = True) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def setting_with(environ: dict[str, str] | None = None, **notify: Any) -> Project:
    config = Config.model_validate({"notify": notify})
    return Project(Path("/shop"), config, environ or {"TERM": "xterm"}, UserDirs(Path("/cache"), Path("/state")))


def built(environ: dict[str, str] | None = None, *, is_terminal: bool = True, **notify: Any) -> Notifier | None:
    return build_notifier(setting_with(environ, **notify), Screen(is_terminal=is_terminal), pytest.fail)


def test_doctor_tells_each_way_to_the_user() -> None:
    no_bus = ("", "no session bus (DBUS_SESSION_BUS_ADDRESS is not set)")
    hook = ("by the hook: lamp 'a b'", "")
    found = asyncio.run(describe_channels(setting_with(hook=["lamp", "a b"]), Screen()))
    assert found == [no_bus, ("using the terminal bell", ""), hook]
    assert asyncio.run(describe_channels(setting_with(), Screen(is_terminal=False))) == [no_bus]
    assert asyncio.run(describe_channels(setting_with(mode="off"), Screen())) == [("off", "")]


def ways(**given: Any) -> tuple[bool, bool, bool]:
    """Return the channels: desktop, terminal, hook."""
    notifier = built(**given)
    if notifier is None:
        return False, False, False
    found = notifier.channels
    return found.desktop is not None, found.terminal is not None, found.hook is not None


def test_by_default_the_desktop_is_told_and_the_terminal_stands_in() -> None:
    notifier = built()
    assert notifier is not None
    assert isinstance(notifier.channels.desktop, DbusChannel)
    assert notifier.channels.terminal is not None
    assert (notifier.rules.mode, notifier.rules.quiet, notifier.channels.hook) == (
        NotifyMode.CHANGES,
        QuietHours(),
        None,
    )


def test_what_is_no_terminal_is_never_rung() -> None:
    assert ways(is_terminal=False) == (True, False, False)
    assert ways(is_terminal=False, terminal="bell") == (True, False, False)
    assert ways(environ={"TERM": "dumb"}) == (True, False, False)


def test_without_a_terminal_attached_dashboards_show_the_notification() -> None:
    def relayed(**notify: Any) -> NotificationRelay | None:
        relay = NotificationRelay()
        notifier = build_notifier(setting_with(**notify), Screen(is_terminal=False), pytest.fail, relay=relay)
        return relay if notifier is not None and notifier.channels.terminal is relay else None

    found = relayed(terminal="osc9")
    assert found is not None
    assert found.method is TerminalMethod.OSC9
    assert relayed() is not None
    assert relayed(terminal="off") is None
    assert relayed(desktop=False) is None


def test_a_desktop_that_is_off_rings_nothing_unless_the_user_says_how() -> None:
    assert ways(desktop=False) == (False, False, False)
    assert ways(desktop=False, terminal="bell") == (False, True, False)
    assert ways(terminal="off") == (True, False, False)


def test_off_is_off_for_all() -> None:
    assert built(mode="off", hook="lamp") is None


def test_the_settings_reach_the_notifier() -> None:
    notifier = built(desktop=False, hook=["lamp"], mode="all", quiet_hours="22:00-07:00")
    assert notifier is not None
    assert notifier.channels.hook == Hook(("lamp",), Path("/shop"), {"TERM": "xterm"})
    assert (notifier.rules.mode, notifier.rules.quiet) == (NotifyMode.ALL, QuietHours(time(22), time(7)))
