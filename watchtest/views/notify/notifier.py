"""Sends notifications in the background: to the desktop or else the terminal, and to the hook, as the settings say.

The first failure of each kind is shown to the user, later ones are logged. Each notification tries the desktop again.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TextIO, TypeVar

from watchtest.config import Project
from watchtest.core.state import State
from watchtest.core.text import encodable, one_line
from watchtest.views.notify import notifications
from watchtest.views.notify.dbus_channel import DbusChannel
from watchtest.views.notify.hook import Hook
from watchtest.views.notify.native_channel import NativeChannel
from watchtest.views.notify.notifications import DeliveryFailed, Notification, NotificationChannel, NotificationKind
from watchtest.views.notify.terminal_channel import NotificationRelay, TerminalAccess, TerminalChannel, TerminalMethod

log = logging.getLogger(__name__)
T = TypeVar("T")

DELIVERY_S = 4.0
GRACE_S = 1.0
"""How long leaving waits for notifications that are being sent."""
HOOKS_WAITING = 20
DESCRIBE_LIMIT_S = 4.0


class Outbox(Generic[T]):
    """Sends items one after the other in the background. Of the waiting items, only the last `most` are kept."""

    def __init__(self, name: str, send: Callable[[T], Awaitable[None]], say: Callable[[str], None], most: int) -> None:
        self._name = name
        self._send = send
        self._say = say
        self._waiting: deque[T] = deque(maxlen=most)
        self._task: asyncio.Task[None] | None = None

    def put(self, item: T) -> None:
        self._waiting.append(item)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work(), name=f"watchtest {self._name}")

    async def close(self, grace_s: float) -> None:
        """Wait `grace_s` for the items that are left, then drop them."""
        if self._task is None or self._task.done():
            return
        await asyncio.wait([self._task], timeout=grace_s)
        self._waiting.clear()
        self._task.cancel()
        await asyncio.wait([self._task], timeout=grace_s)

    async def _work(self) -> None:
        while self._waiting:
            try:
                await self._send(self._waiting.popleft())
            except Exception as error:
                log.exception("internal error in %s", self._name)
                self._say(f"{self._name}: internal error: {type(error).__name__}: {error}; see the log for details")


@dataclass(frozen=True, slots=True)
class NotifyChannels:
    """Where notifications go: to the desktop, or to the terminal if there is no desktop or it fails.

    A watcher without a terminal relays to the attached ones instead.
    """

    desktop: NotificationChannel | None = None
    terminal: TerminalChannel | NotificationRelay | None = None
    hook: Hook | None = None
    delivery_s: float = DELIVERY_S


@dataclass(frozen=True, slots=True)
class NotifyRules:
    """Which notifications are sent, and when."""

    mode: notifications.NotifyMode = notifications.NotifyMode.CHANGES
    quiet: notifications.QuietHours = field(default_factory=notifications.QuietHours)
    local: Callable[[float], time.struct_time] = time.localtime


@dataclass
class Notifier:
    """Sends what each state adds; `show` returns at once. Enter and leave it within one event loop."""

    workspace: str
    channels: NotifyChannels
    on_problem: Callable[[str], None]
    rules: NotifyRules = NotifyRules()
    _state: State | None = None
    _reported: notifications.ReportedLanes = field(default_factory=dict)
    _is_quiet: bool = False
    _live: Notification | None = None
    _problems: set[str] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        self._notifications = Outbox("a notification", self._deliver, self.on_problem, most=1)
        self._hooks = Outbox("the hook", self._run_hook, self.on_problem, most=HOOKS_WAITING)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(self._notifications.close(GRACE_S), self._hooks.close(GRACE_S))
        channels = [channel for channel in (self.channels.desktop, self.channels.terminal) if channel is not None]
        for channel in channels:
            if self._live is not None and self._live.kind.is_trouble:
                # After this, nothing would remove it once it is no longer true.
                await self._attempt(channel.withdraw(), GRACE_S)
            await self._attempt(channel.close(), GRACE_S)

    def show(self, state: State, now: float) -> None:
        """Send what `state` adds, in the background; during quiet hours it waits."""
        self._state = state
        self._is_quiet = self.rules.quiet.contains(self.rules.local(now))
        if not self._is_quiet:
            self._send(state, now)

    def tick(self, now: float) -> None:
        """After quiet hours, send once what has changed during them."""
        if self._is_quiet and self._state is not None:
            self.show(self._state, now)

    def _send(self, state: State, now: float) -> None:
        new, self._reported = notifications.new_notifications(self._reported, state, self.workspace)
        kinds = notifications.KINDS_BY_MODE[self.rules.mode]
        wanted = [notification for notification in new if notification.kind in kinds]
        for notification in wanted:
            if self.channels.hook is not None:
                self._hooks.put((notification, now))
        if wanted:
            # There is one live notification per workspace, and trouble must be seen.
            self._notifications.put(max(wanted, key=lambda notification: notification.kind.is_trouble))
        elif any(notification.kind in (NotificationKind.GREEN, NotificationKind.BACK) for notification in new):
            self._notifications.put(None)

    async def _deliver(self, notification: Notification | None) -> None:
        """Show it on the first channel that works; None removes the live notification."""
        if notification is None and self._live is None:
            return
        desktop, terminal = self.channels.desktop, self.channels.terminal
        failure = await self._deliver_by(desktop, notification) if desktop is not None else ""
        if desktop is None or failure:
            lack = await self._deliver_by(terminal, notification) if terminal is not None else ""
            if desktop is not None:
                fallback = f"; {lack or terminal.fallback}" if terminal is not None else ""
                self._report("desktop notifications are unavailable", f" ({failure}){fallback}")
            elif lack:
                self._report("terminal notifications are unavailable", f" ({lack})")
        self._live = notification

    async def _deliver_by(self, channel: NotificationChannel, notification: Notification | None) -> str:
        """Return why it failed, or an empty string."""
        work = channel.deliver(notification) if notification else channel.withdraw()
        return await self._attempt(work, self.channels.delivery_s)

    async def _run_hook(self, item: tuple[Notification, float]) -> None:
        assert self.channels.hook is not None
        try:
            await self.channels.hook.run(*item)
        except DeliveryFailed as failure:
            self._report("notify.hook failed", f": {one_line(str(failure))}")

    async def _attempt(self, work: Coroutine[Any, Any, None], limit_s: float) -> str:
        """Return why it failed, or an empty string."""
        try:
            await asyncio.wait_for(work, limit_s)
        except TimeoutError:
            return f"no answer within {limit_s:g} s"
        except DeliveryFailed as failure:
            return one_line(str(failure)) or "no reason given"
        return ""

    def _report(self, problem: str, details: str) -> None:
        log.info("%s%s", problem, details)
        if problem not in self._problems:
            self._problems.add(problem)
            self.on_problem(problem + details)


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
    desktop = NativeChannel() if sys.platform in ("darwin", "win32") else DbusChannel(project.environ)
    channels = NotifyChannels(
        desktop=desktop if notify.desktop else None,
        terminal=_terminal(project, stream, is_lent, relay),
        hook=Hook(notify.hook, project.workspace, project.environ) if notify.hook else None,
    )
    rules = NotifyRules(notifications.NotifyMode(notify.mode), notifications.QuietHours.parse(notify.quiet_hours))
    if rules.mode is notifications.NotifyMode.OFF or channels == NotifyChannels():
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
