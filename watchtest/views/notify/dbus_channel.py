"""The desktops of Linux and the BSDs: org.freedesktop.Notifications over the session bus, by dbus-fast.

desktop-notifier speaks it, too, but cannot replace a notification in place and does not escape markup. Nothing is
offered for a click: it only dismisses.
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
LOOKS = 3
ICONS = {
    NotificationKind.GREEN: "emblem-default",
    NotificationKind.PASSED: "emblem-default",
    NotificationKind.LOST: "dialog-warning",
}
TROUBLE_ICON, OTHER_ICON = "dialog-error", "dialog-information"
AS_THE_USER_SET_IT = -1
"""How long it is shown: every desktop has a setting for that."""


@dataclass(frozen=True, slots=True)
class NotificationDaemon:
    """A notification daemon: who it is on the bus, what it is called, what it can do."""

    address: str
    name: str
    capabilities: frozenset[str]


class DbusChannel:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._bus: MessageBus | None = None
        self._server: NotificationDaemon | None = None
        self._shown = 0
        """The daemon's number of the live notification; numbers of one daemon mean nothing to the next."""
        self._watches: set[asyncio.Task[None]] = set()

    async def look(self) -> str:
        return (await self._tried(self._current_server())).name

    async def deliver(self, notice: Notification) -> None:
        await self._tried(self._deliver(notice))

    async def withdraw(self) -> None:
        if self._shown:
            await self._tried(self._withdraw())

    async def close(self) -> None:
        self._drop()
        if self._watches:
            await asyncio.wait(tuple(self._watches), timeout=CLOSE_S)

    async def _tried(self, work: Awaitable[T]) -> T:
        """A connection that failed, or that was given up in the middle of a call, is not used again."""
        try:
            return await work
        except DeliveryFailed:  # the daemon's own answer
            raise
        except Exception as error:
            self._drop()
            raise DeliveryFailed(_words(error)) from error
        except BaseException:
            self._drop()
            raise

    async def _deliver(self, notice: Notification) -> None:
        from dbus_fast import Variant

        server = await self._current_server()
        title, body = notice.title, "\n".join(notice.lines)
        if "body-markup" in server.capabilities:
            body = html.escape(body, quote=False)
        if "body" not in server.capabilities:
            title, body = f"{title}: {notice.text}" if notice.text else title, ""
        is_trouble = notice.kind.is_trouble
        # GNOME shows no banner for what is low: it would only replace the red one where nobody looks.
        urgency = NORMAL if is_trouble or server.name == "gnome-shell" else LOW
        hints = {"urgency": Variant("y", urgency), "transient": Variant("b", not is_trouble)}
        icon = ICONS.get(notice.kind, TROUBLE_ICON if is_trouble else OTHER_ICON)
        answer = await self._call(
            "Notify",
            "susssasa{sv}i",
            ["watchtest", self._shown, icon, title, body, [], hints, AS_THE_USER_SET_IT],
            to=server.address,
        )
        self._shown = int(answer.body[0])

    async def _withdraw(self) -> None:
        server, shown = await self._current_server(), self._shown
        if shown:  # it may be another daemon by now, with other numbers
            self._shown = 0
            await self._call("CloseNotification", "u", [shown], to=server.address)

    async def _current_server(self) -> NotificationDaemon:
        """Whoever answers now. Asked each time: a daemon that was started anew gives our number to others."""
        await self._connect()
        answer = await self._call("GetCapabilities")
        if self._server is None or self._server.address != answer.sender:
            about = await self._call("GetServerInformation", to=answer.sender)
            self._shown = 0
            self._server = NotificationDaemon(answer.sender, str(about.body[0]), frozenset(answer.body[0]))
            log.info("notifications go to %s", " ".join(map(str, about.body)))
        return self._server

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

    # -- the connection ----------------------------------------------------------------------------

    async def _connect(self) -> None:
        # A bus that died this very moment is noticed by then: dbus-fast leaves stray exceptions when it writes to one.
        for _ in range(LOOKS):
            await asyncio.sleep(0)
        if self._bus is not None and self._bus.connected:
            return
        self._drop()
        address = session_bus(self._environ)
        await asyncio.to_thread(importlib.import_module, "dbus_fast.aio")  # takes a while
        from dbus_fast.aio import MessageBus

        try:
            self._bus = await MessageBus(bus_address=address).connect()
        except OSError as error:
            raise DeliveryFailed(f"no session bus at {address}: {error.strerror or error}") from error
        watch = asyncio.create_task(self._until_gone(self._bus), name="watchtest session bus")
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    async def _until_gone(self, bus: MessageBus) -> None:
        try:
            await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001  whatever ended it: the next notice makes a new one, and says if it fails
            log.info("the session bus went away: %s", _words(error))
        if self._bus is bus:
            self._drop()

    def _drop(self) -> None:
        bus, self._bus, self._server, self._shown = self._bus, None, None, 0
        if bus is not None and bus.connected:
            bus.disconnect()


def session_bus(environ: Mapping[str, str]) -> str:
    """The address of this user's session bus: where the session says, else where systemd puts it."""
    if address := environ.get("DBUS_SESSION_BUS_ADDRESS"):
        return address
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime and (socket := Path(runtime, "bus")).exists():
        return f"unix:path={quote(str(socket)).replace('~', '%7E')}"
    raise DeliveryFailed("no session bus (DBUS_SESSION_BUS_ADDRESS is not set)")


def _words(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the session bus went away"
    return f"{type(error).__name__}: {error}"
