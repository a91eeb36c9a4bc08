"""From settings to the notifier: which ways there are to the user. Builds; tells nothing."""

from __future__ import annotations

import asyncio
import logging
import shlex
import sys
from collections.abc import Callable
from typing import TextIO

from watchtest.config.project import Project
from watchtest.core.text import encodable, one_line
from watchtest.views.notify.dbus_channel import DbusChannel
from watchtest.views.notify.hook import Hook
from watchtest.views.notify.native_channel import NativeChannel
from watchtest.views.notify.notifications import DeliveryFailed, NotificationChannel, NotifyMode, QuietHours
from watchtest.views.notify.notifier import Notifier, NotifyChannels, NotifyRules
from watchtest.views.notify.terminal_channel import NotificationRelay, TerminalAccess, TerminalChannel, TerminalMethod

log = logging.getLogger(__name__)
LOOK_S = 4.0


def build_notifier(
    project: Project,
    stream: TextIO,
    say: Callable[[str], None],
    is_lent: Callable[[], bool] = lambda: False,
    relay: NotificationRelay | None = None,
) -> Notifier | None:
    """None: nobody wants to be told. `stream` is where the screen is drawn; it is written only if it is a terminal.

    `is_lent`: another program has that terminal for the moment. `relay` stands in for a terminal that is none.
    """
    notify = project.config.notify
    ways = NotifyChannels(
        desktop=_desktop(project) if notify.desktop else None,
        terminal=_terminal(project, stream, is_lent, relay),
        hook=Hook(notify.hook, project.workspace, project.environ) if notify.hook else None,
    )
    when = NotifyRules(NotifyMode(notify.mode), QuietHours.read(notify.quiet_hours))
    if when.mode is NotifyMode.OFF or ways == NotifyChannels():
        return None
    return Notifier(project.workspace.name, ways, say, when)


async def describe_channels(project: Project, stream: TextIO) -> list[tuple[str, str]]:
    """Of each way to the user that is on: who would show a notice, or nobody and why. Shows nothing."""
    notifier = build_notifier(project, stream, log.warning)
    if notifier is None:
        return [("off", "")]
    found = []
    desktop, terminal, hook = notifier.ways.desktop, notifier.ways.terminal, notifier.ways.hook
    if desktop is not None:
        try:
            who = one_line(await asyncio.wait_for(desktop.look(), LOOK_S))
            found.append((f"on the desktop, by {who}", ""))
        except TimeoutError:
            found.append(("", f"no answer within {LOOK_S:g} s"))
        except DeliveryFailed as failure:
            found.append(("", one_line(str(failure))))
        await desktop.close()
    if terminal is not None and (desktop is None or not found[0][0]):
        found.append((await terminal.look(), ""))
    if hook is not None:
        command = hook.command if isinstance(hook.command, str) else shlex.join(hook.command)
        found.append((f"by the hook: {one_line(command)}", ""))
    return found


def _desktop(project: Project) -> NotificationChannel:
    return NativeChannel() if sys.platform in ("darwin", "win32") else DbusChannel(project.environ)


def _terminal(
    project: Project, stream: TextIO, is_lent: Callable[[], bool], relay: NotificationRelay | None
) -> TerminalChannel | NotificationRelay | None:
    """`auto` stands in for a desktop that cannot be reached; a form that was named also for one that is off."""
    notify = project.config.notify
    is_auto = notify.terminal == "auto"
    if notify.terminal == "off" or (is_auto and not notify.desktop):
        return None
    form = None if is_auto else TerminalMethod(notify.terminal)
    if not stream.isatty():
        if relay is not None:
            relay.form = form
        return relay
    if is_auto and project.environ.get("TERM") == "dumb":  # which would print the bell
        return None

    def write(text: str) -> None:
        # In the loop's own thread, as the dashboard draws: no drawing is under way.
        stream.write(encodable(text, stream.encoding))
        stream.flush()

    return TerminalChannel(TerminalAccess(write, is_lent), project.environ, str(project.workspace), form)
