"""The desktops of macOS and Windows through desktop-notifier.

Its `send` never raises: only `on_dispatched` proves delivery. It cannot replace: the last one is cleared before.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Awaitable
from types import ModuleType
from typing import Any

from watchtest.views.notify.notifications import DeliveryFailed, Notification


class _LastLogMessage(logging.Handler):
    """Keeps the last reason that desktop-notifier logs instead of raising."""

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.reason = f"{type(error).__name__}: {error}" if error else record.getMessage()


class NativeChannel:
    """desktop-notifier is imported at the first notice and in a thread: it takes a while."""

    def __init__(self) -> None:
        self._notifier: Any = None
        self._shown: str | None = None
        self._heard = _LastLogMessage()

    async def look(self) -> str:
        await self._tried(self._ready())
        return "this system"

    async def deliver(self, notice: Notification) -> None:
        await self._tried(self._deliver(notice))

    async def withdraw(self) -> None:
        if self._shown is not None:
            await self._tried(self._withdraw())

    async def close(self) -> None:
        self._drop()

    async def _tried(self, work: Awaitable[None]) -> None:
        try:
            await work
        except BaseException as error:
            self._drop()
            if isinstance(error, DeliveryFailed) or not isinstance(error, Exception):
                raise
            # Whatever a bus, a daemon or a backend throws, it is a failed delivery.
            raise DeliveryFailed(f"{type(error).__name__}: {error}") from error

    async def _ready(self) -> None:
        library = await asyncio.to_thread(_library, self._heard)
        if self._notifier is None:
            self._notifier = library.DesktopNotifier(app_name="watchtest", app_icon=None)
        # Asked first because it raises where `send` does not, and because a backend that can do nothing
        # (Python outside a signed app on macOS) calls everything dispatched.
        if library.Capability.TITLE not in await self._notifier.get_capabilities():
            raise DeliveryFailed(self._heard.reason or "this system shows no notifications of this Python")

    async def _deliver(self, notice: Notification) -> None:
        await self._ready()
        await self._withdraw()
        library = _library(self._heard)
        was_dispatched = asyncio.Event()
        self._heard.reason = ""
        self._shown = await self._notifier.send(
            title=notice.title,
            message="\n".join(notice.lines),
            urgency=library.Urgency.Normal if notice.kind.is_trouble else library.Urgency.Low,
            on_dispatched=was_dispatched.set,
        )
        if not was_dispatched.is_set():
            raise DeliveryFailed(self._heard.reason or "it was not dispatched")

    async def _withdraw(self) -> None:
        shown, self._shown = self._shown, None
        if shown is not None and shown in await self._notifier.get_current_notifications():
            await self._notifier.clear(shown)

    def _drop(self) -> None:
        """Forget the connection, so that the next notice makes a new one."""
        notifier, self._notifier, self._shown = self._notifier, None, None
        bus = getattr(getattr(notifier, "_backend", None), "bus", None)
        if bus is not None:
            bus.disconnect()


def _library(heard: logging.Handler) -> ModuleType:
    logger = logging.getLogger("desktop_notifier")
    if heard not in logger.handlers:
        # Its warnings come with tracebacks and would land on the dashboard.
        logger.handlers = [heard]
        logger.propagate = False
    return importlib.import_module("desktop_notifier")
