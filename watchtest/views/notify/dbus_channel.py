"""Notifications on the desktops of Linux and the BSDs: org.freedesktop.Notifications over D-Bus, with dbus-fast.

desktop-notifier supports D-Bus as well, but cannot replace a notification in place and does not escape markup.
A click only dismisses the notification.
"""

from __future__ import annotations

import asyncio
import html
import importlib
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from watchtest.views.notify.notifications import DeliveryFailed, Notification, NotificationKind

if TYPE_CHECKING:
    from dbus_fast.aio import MessageBus

log = logging.getLogger(__name__)
T = TypeVar("T")

NAME = "org.freedesktop.Notifications"
PATH = "/org/freedesktop/Notifications"
LOW, NORMAL = 0, 1
CLOSE_S = 0.5
CONNECTION_CHECKS = 3
ICONS = {
    NotificationKind.GREEN: "emblem-default",
    NotificationKind.PASSED: "emblem-default",
    NotificationKind.LOST: "dialog-warning",
}
TROUBLE_ICON, OTHER_ICON = "dialog-error", "dialog-information"
DEFAULT_TIMEOUT = -1
"""The desktop's own setting decides how long a notification is shown."""


@dataclass(frozen=True, slots=True)
class NotificationDaemon:
    """The program that shows notifications, with its address on the bus."""

    address: str
    name: str
    capabilities: frozenset[str]


class DbusChannel:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._bus: MessageBus | None = None
        self._daemon: NotificationDaemon | None = None
        self._shown = 0
        """The id of the live notification; it is valid only for the daemon that assigned it."""
        self._watches: set[asyncio.Task[None]] = set()

    async def describe(self) -> str:
        return (await self._attempt(self._current_daemon())).name

    async def deliver(self, notification: Notification) -> None:
        await self._attempt(self._deliver(notification))

    async def withdraw(self) -> None:
        if self._shown:
            await self._attempt(self._withdraw())

    async def close(self) -> None:
        self._drop()
        if self._watches:
            await asyncio.wait(tuple(self._watches), timeout=CLOSE_S)

    async def _attempt(self, work: Awaitable[T]) -> T:
        """Drop the connection if it fails or if the call is cancelled; the next call makes a new one."""
        try:
            return await work
        except DeliveryFailed:  # the daemon's own answer
            raise
        except BaseException as error:
            self._drop()
            if isinstance(error, Exception):
                raise DeliveryFailed(_reason(error)) from error
            raise

    async def _deliver(self, notification: Notification) -> None:
        from dbus_fast import Variant

        daemon = await self._current_daemon()
        title, body = notification.title, "\n".join(notification.lines)
        if "body-markup" in daemon.capabilities:
            body = html.escape(body, quote=False)
        if "body" not in daemon.capabilities:
            title, body = f"{title}: {notification.text}" if notification.text else title, ""
        is_trouble = notification.kind.is_trouble
        # GNOME shows no banner for low urgency: the user would not see that the red one is outdated.
        urgency = NORMAL if is_trouble or daemon.name == "gnome-shell" else LOW
        hints = {"urgency": Variant("y", urgency), "transient": Variant("b", not is_trouble)}
        icon = ICONS.get(notification.kind, TROUBLE_ICON if is_trouble else OTHER_ICON)
        answer = await self._call(
            "Notify",
            "susssasa{sv}i",
            ["watchtest", self._shown, icon, title, body, [], hints, DEFAULT_TIMEOUT],
            to=daemon.address,
        )
        self._shown = int(answer.body[0])

    async def _withdraw(self) -> None:
        daemon, shown = await self._current_daemon(), self._shown
        if shown:  # it is 0 if another daemon is there by now
            self._shown = 0
            await self._call("CloseNotification", "u", [shown], to=daemon.address)

    async def _current_daemon(self) -> NotificationDaemon:
        """Return the daemon that answers now. It is asked each time: a restarted one may reuse our id for others."""
        await self._connect()
        answer = await self._call("GetCapabilities")
        if self._daemon is None or self._daemon.address != answer.sender:
            about = await self._call("GetServerInformation", to=answer.sender)
            self._shown = 0
            self._daemon = NotificationDaemon(answer.sender, str(about.body[0]), frozenset(answer.body[0]))
            log.info("notifications go to %s", " ".join(map(str, about.body)))
        return self._daemon

    async def _call(self, member: str, signature: str = "", body: list[Any] | None = None, *, to: str = NAME) -> Any:
        from dbus_fast import Message, MessageType

        assert self._bus is not None
        message = Message(to, PATH, NAME, member, signature=signature, body=body or [])
        answer = await self._bus.call(message)
        if answer is None:
            raise EOFError
        if answer.message_type is MessageType.ERROR:
            raise DeliveryFailed(str(answer.body[0]) if answer.body else str(answer.error_name))
        return answer

    async def _connect(self) -> None:
        # Let the event loop notice a bus that has just died: dbus-fast leaves stray exceptions when it writes to one.
        for _ in range(CONNECTION_CHECKS):
            await asyncio.sleep(0)
        if self._bus is not None and self._bus.connected:
            return
        self._drop()
        address = session_bus(self._environ)
        await asyncio.to_thread(importlib.import_module, "dbus_fast.aio")  # a slow import
        from dbus_fast.aio import MessageBus

        try:
            self._bus = await MessageBus(bus_address=address).connect()
        except OSError as error:
            raise DeliveryFailed(f"no session bus at {address}: {error.strerror or error}") from error
        watch = asyncio.create_task(self._watch_bus(self._bus), name="watchtest session bus")
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    async def _watch_bus(self, bus: MessageBus) -> None:
        try:
            await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001  the next notification connects again, and reports if that fails
            log.info("lost the session bus: %s", _reason(error))
        if self._bus is bus:
            self._drop()

    def _drop(self) -> None:
        bus, self._bus, self._daemon, self._shown = self._bus, None, None, 0
        if bus is not None and bus.connected:
            bus.disconnect()


def session_bus(environ: Mapping[str, str]) -> str:
    """Return the address of the user's session bus: from the environment, or where systemd puts it."""
    if address := environ.get("DBUS_SESSION_BUS_ADDRESS"):
        return address
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime and (socket := Path(runtime, "bus")).exists():
        return f"unix:path={quote(str(socket)).replace('~', '%7E')}"
    raise DeliveryFailed("no session bus (DBUS_SESSION_BUS_ADDRESS is not set)")


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "lost the session bus"
    return f"{type(error).__name__}: {error}"
