"""Notifications on macOS and Windows, with desktop-notifier.

Its `send` never raises: only `on_dispatched` proves delivery. It cannot replace a notification, so the last one is
cleared first.
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
    """Keeps the last error that desktop-notifier logs instead of raising it."""

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.reason = f"{type(error).__name__}: {error}" if error else record.getMessage()


class NativeChannel:
    """Imports desktop-notifier with the first notification, in a thread: the import is slow."""

    def __init__(self) -> None:
        self._notifier: Any = None
        self._shown: str | None = None
        self._last_log = _LastLogMessage()

    async def describe(self) -> str:
        await self._attempt(self._ready())
        return "this system"

    async def deliver(self, notification: Notification) -> None:
        await self._attempt(self._deliver(notification))

    async def withdraw(self) -> None:
        if self._shown is not None:
            await self._attempt(self._withdraw())

    async def close(self) -> None:
        self._drop()

    async def _attempt(self, work: Awaitable[None]) -> None:
        try:
            await work
        except BaseException as error:
            self._drop()
            if isinstance(error, DeliveryFailed) or not isinstance(error, Exception):
                raise
            # Any error of a backend is a failed delivery.
            raise DeliveryFailed(f"{type(error).__name__}: {error}") from error

    async def _ready(self) -> None:
        library = await asyncio.to_thread(_library, self._last_log)
        if self._notifier is None:
            self._notifier = library.DesktopNotifier(app_name="watchtest", app_icon=None)
        # Ask first: this raises where `send` does not, and a backend that can show nothing
        # (Python outside a signed app on macOS) reports every notification as dispatched.
        if library.Capability.TITLE not in await self._notifier.get_capabilities():
            raise DeliveryFailed(self._last_log.reason or "this system does not show notifications of this Python")

    async def _deliver(self, notification: Notification) -> None:
        await self._ready()
        await self._withdraw()
        library = _library(self._last_log)
        was_dispatched = asyncio.Event()
        self._last_log.reason = ""
        self._shown = await self._notifier.send(
            title=notification.title,
            message="\n".join(notification.lines),
            urgency=library.Urgency.Normal if notification.kind.is_trouble else library.Urgency.Low,
            on_dispatched=was_dispatched.set,
        )
        if not was_dispatched.is_set():
            raise DeliveryFailed(self._last_log.reason or "the notification was not dispatched")

    async def _withdraw(self) -> None:
        shown, self._shown = self._shown, None
        if shown is not None and shown in await self._notifier.get_current_notifications():
            await self._notifier.clear(shown)

    def _drop(self) -> None:
        """Drop the connection; the next notification makes a new one."""
        notifier, self._notifier, self._shown = self._notifier, None, None
        bus = getattr(getattr(notifier, "_backend", None), "bus", None)
        if bus is not None:
            bus.disconnect()


def _library(handler: logging.Handler) -> ModuleType:
    logger = logging.getLogger("desktop_notifier")
    if handler not in logger.handlers:
        # Its warnings contain tracebacks and would be written over the dashboard.
        logger.handlers = [handler]
        logger.propagate = False
    return importlib.import_module("desktop_notifier")
