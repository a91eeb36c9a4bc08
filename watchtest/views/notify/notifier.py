"""Tells what is worth telling, beside the loop: by the desktop, else by the terminal; and by the hook.

A failure is said once. Each notice tries the desktop again: a bus that comes back is used again.

Things that are sent one after the other, beside the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from watchtest.core.state import State
from watchtest.core.text import one_line
from watchtest.views.notify.hook import Hook
from watchtest.views.notify.notifications import (
    KINDS_BY_MODE,
    DeliveryFailed,
    Notification,
    NotificationChannel,
    NotificationKind,
    NotifyMode,
    QuietHours,
    ReportedLanes,
    new_notifications,
)
from watchtest.views.notify.terminal_channel import NotificationRelay, TerminalChannel

log = logging.getLogger(__name__)

T = TypeVar("T")


class Outbox(Generic[T]):
    """`put` returns at once. Of what waits, the last `most` are kept. A bug in `send` is logged and said."""

    def __init__(
        self, name: str, send: Callable[[T], Awaitable[None]], on_bug: Callable[[str], None], most: int
    ) -> None:
        self._name = name
        self._send = send
        self._on_bug = on_bug
        self._waiting: deque[T] = deque(maxlen=most)
        self._task: asyncio.Task[None] | None = None

    def put(self, thing: T) -> None:
        self._waiting.append(thing)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work(), name=f"watchtest {self._name}")

    async def close(self, grace_s: float) -> None:
        """What is under way and what waits has so long; then it is given up."""
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
                log.exception("%s failed by a bug", self._name)
                self._on_bug(f"{self._name} failed by a bug: {type(error).__name__}: {error}; the log has the details")


log = logging.getLogger(__name__)

DELIVERY_S = 4.0
GRACE_S = 1.0
"""How long leaving waits for what is on its way."""
HOOKS_WAITING = 20


@dataclass(frozen=True, slots=True)
class NotifyChannels:
    """To the user. The terminal, or those of who is attached to a watcher without one, is told what the desktop cannot
    show, or everything where there is no desktop."""

    desktop: NotificationChannel | None = None
    terminal: TerminalChannel | NotificationRelay | None = None
    hook: Hook | None = None
    delivery_s: float = DELIVERY_S


@dataclass(frozen=True, slots=True)
class NotifyRules:
    """What is told, and at which hours."""

    mode: NotifyMode = NotifyMode.CHANGES
    quiet: QuietHours = field(default_factory=QuietHours)
    local: Callable[[float], time.struct_time] = time.localtime


@dataclass
class Notifier:
    """`show` returns at once. Enter and leave it within one event loop."""

    workspace: str
    ways: NotifyChannels
    on_problem: Callable[[str], None]
    when: NotifyRules = NotifyRules()
    _state: State | None = None
    _told: ReportedLanes = field(default_factory=dict)
    _is_held: bool = False
    _live: Notification | None = None
    _said: set[str] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        self._notices = Outbox("a notification", self._deliver, self.on_problem, most=1)
        self._hooks = Outbox("the hook", self._run_hook, self.on_problem, most=HOOKS_WAITING)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.gather(self._notices.close(GRACE_S), self._hooks.close(GRACE_S))
        channels = [channel for channel in (self.ways.desktop, self.ways.terminal) if channel is not None]
        for channel in channels:
            if self._live is not None and self._live.kind.is_trouble:
                # From now on nobody would take it back when it is no longer true.
                await self._attempt(channel.withdraw(), GRACE_S)
            await self._attempt(channel.close(), GRACE_S)

    def show(self, state: State, now: float) -> None:
        """Send what `state` adds, in the background. In quiet hours it waits."""
        self._state = state
        self._is_held = self.when.quiet.holds(self.when.local(now))
        if not self._is_held:
            self._tell(state, now)

    def tick(self, now: float) -> None:
        """At the end of quiet hours: tell, once, what they have changed in all."""
        if self._is_held and self._state is not None:
            self.show(self._state, now)

    def _tell(self, state: State, now: float) -> None:
        new, self._told = new_notifications(self._told, state, self.workspace)
        wanted = [notice for notice in new if notice.kind in KINDS_BY_MODE[self.when.mode]]
        for notice in wanted:
            if self.ways.hook is not None:
                self._hooks.put((notice, now))
        if wanted:
            # One live notification a workspace, and trouble is what has to be seen.
            self._notices.put(max(wanted, key=lambda notice: notice.kind.is_trouble))
        elif any(notice.kind in (NotificationKind.GREEN, NotificationKind.BACK) for notice in new):
            self._notices.put(None)

    async def _deliver(self, notice: Notification | None) -> None:
        """By the first way that works; without a notice, take away what stands there."""
        if notice is None and self._live is None:
            return
        desktop, terminal = self.ways.desktop, self.ways.terminal
        reason = ""
        if desktop is not None:
            reason = await self._attempt(
                desktop.deliver(notice) if notice else desktop.withdraw(), self.ways.delivery_s
            )
        if terminal is not None and (reason or desktop is None):
            lack = await self._attempt(
                terminal.deliver(notice) if notice else terminal.withdraw(), self.ways.delivery_s
            )
            reason = f"{reason}; {lack or terminal.words}" if reason else lack
        self._live = notice
        if reason:
            self._report("no desktop notifications" if desktop else "no notifications on the terminal", reason)

    async def _run_hook(self, told: tuple[Notification, float]) -> None:
        assert self.ways.hook is not None
        try:
            await self.ways.hook.run(*told)
        except DeliveryFailed as failure:
            self._report("notify.hook failed", str(failure))

    async def _attempt(self, work: Coroutine[Any, Any, None], limit_s: float) -> str:
        """Why it failed, or nothing."""
        try:
            await asyncio.wait_for(work, limit_s)
        except TimeoutError:
            return f"no answer within {limit_s:g} s"
        except DeliveryFailed as failure:
            return one_line(str(failure)) or "no reason was given"
        return ""

    def _report(self, what: str, reason: str) -> None:
        log.info("%s: %s", what, reason)
        if what not in self._said:
            self._said.add(what)
            self.on_problem(f"{what}: {one_line(reason)} (said once)")
