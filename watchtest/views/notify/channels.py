"""Builds the notifier with the channels that the settings ask for."""

from __future__ import annotations

import asyncio
import logging
import shlex
import sys
from collections.abc import Callable
from typing import TextIO

from watchtest.config import Project
from watchtest.core.text import encodable, one_line
from watchtest.views.notify.dbus_channel import DbusChannel
from watchtest.views.notify.hook import Hook
from watchtest.views.notify.native_channel import NativeChannel
from watchtest.views.notify.notifications import DeliveryFailed, NotificationChannel, NotifyMode, QuietHours
from watchtest.views.notify.notifier import Notifier, NotifyChannels, NotifyRules
from watchtest.views.notify.terminal_channel import NotificationRelay, TerminalAccess, TerminalChannel, TerminalMethod

log = logging.getLogger(__name__)
DESCRIBE_LIMIT_S = 4.0


def build_notifier(
    project: Project,
    stream: TextIO,
    say: Callable[[str], None],
    is_lent: Callable[[], bool] = lambda: False,
    relay: NotificationRelay | None = None,
) -> Notifier | None:
    """Return the notifier, or None if notifications are off. `stream` is used only if it is a terminal.

    `is_lent` says whether another program has that terminal. `relay` is used if the stream is not a terminal.
    """
    notify = project.config.notify
    channels = NotifyChannels(
        desktop=_desktop(project) if notify.desktop else None,
        terminal=_terminal(project, stream, is_lent, relay),
        hook=Hook(notify.hook, project.workspace, project.environ) if notify.hook else None,
    )
    rules = NotifyRules(NotifyMode(notify.mode), QuietHours.parse(notify.quiet_hours))
    if rules.mode is NotifyMode.OFF or channels == NotifyChannels():
        return None
    return Notifier(project.workspace.name, channels, say, rules)


async def describe_channels(project: Project, stream: TextIO) -> list[tuple[str, str]]:
    """Return for each channel how it would show a notification and an empty string, or nothing and why it cannot."""
    notifier = build_notifier(project, stream, log.warning)
    if notifier is None:
        return [("off", "")]
    found = []
    desktop, terminal, hook = notifier.channels.desktop, notifier.channels.terminal, notifier.channels.hook
    if desktop is not None:
        try:
            daemon = one_line(await asyncio.wait_for(desktop.describe(), DESCRIBE_LIMIT_S))
            found.append((f"on the desktop, by {daemon}", ""))
        except TimeoutError:
            found.append(("", f"no answer within {DESCRIBE_LIMIT_S:g} s"))
        except DeliveryFailed as failure:
            found.append(("", one_line(str(failure))))
        await desktop.close()
    if terminal is not None and (desktop is None or not found[0][0]):
        found.append((await terminal.describe(), ""))
    if hook is not None:
        command = hook.command if isinstance(hook.command, str) else shlex.join(hook.command)
        found.append((f"by the hook: {one_line(command)}", ""))
    return found


def _desktop(project: Project) -> NotificationChannel:
    return NativeChannel() if sys.platform in ("darwin", "win32") else DbusChannel(project.environ)


def _terminal(
    project: Project, stream: TextIO, is_lent: Callable[[], bool], relay: NotificationRelay | None
) -> TerminalChannel | NotificationRelay | None:
    """Return the terminal channel. `auto` is the fallback of the desktop; a named method works without one, too."""
    notify = project.config.notify
    is_auto = notify.terminal == "auto"
    if notify.terminal == "off" or (is_auto and not notify.desktop):
        return None
    method = None if is_auto else TerminalMethod(notify.terminal)
    if not stream.isatty():
        if relay is not None:
            relay.method = method
        return relay
    if is_auto and project.environ.get("TERM") == "dumb":  # it would print the bell character
        return None

    def write(text: str) -> None:
        # Called in the event loop's thread, as the dashboard is, so that no drawing is interrupted.
        stream.write(encodable(text, stream.encoding))
        stream.flush()

    return TerminalChannel(TerminalAccess(write, is_lent), project.environ, str(project.workspace), method)
