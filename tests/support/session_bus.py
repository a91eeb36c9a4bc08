"""A session bus for one test (a real dbus-daemon that starts no services), and a notification daemon on it."""

from __future__ import annotations

import asyncio
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus

NAME = "org.freedesktop.Notifications"
PATH = "/org/freedesktop/Notifications"
LIMIT_S = 20
CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy>
</busconfig>
"""


@contextmanager
def session_bus(folder: Path) -> Iterator[str]:
    """Start a bus and yield its address. `folder` must be a short path, because sockets require one."""
    config = folder / "bus.conf"
    config.write_text(CONFIG.format(socket=folder / "bus"))
    command = ["dbus-daemon", f"--config-file={config}", "--nofork", "--nopidfile", "--print-address=1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], LIMIT_S)[0], "the bus does not start"
            yield process.stdout.readline().decode().strip()
        finally:
            process.kill()


@dataclass
class FakeDaemon:
    """Records what it is asked to show, by number, or never answers."""

    address: str
    name: str = "fake"
    capabilities: tuple[str, ...] = ("body", "body-markup")
    is_mute: bool = False
    """It is there and never answers."""
    refusal: str = ""
    first: int = 1
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    calls: list[list[Any]] = field(default_factory=list)
    """The arguments of each Notify."""
    standing: dict[int, str] = field(default_factory=dict)
    """What is on the screen: number and title."""

    async def __aenter__(self) -> Self:
        self._bus = await MessageBus(bus_address=self.address).connect()
        self._bus.add_message_handler(self._handle)
        await self._bus.request_name(NAME)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bus.connected:
            self._bus.disconnect()
        try:
            await asyncio.wait_for(self._bus.wait_for_disconnect(), LIMIT_S)
        except (OSError, EOFError):  # the bus ended first
            pass

    def _handle(self, message: Message) -> Message | bool | None:
        if message.message_type is not MessageType.METHOD_CALL or message.interface != NAME:
            return None
        self.asked.set()
        if self.is_mute:
            return True
        match message.member:
            case "GetCapabilities":
                return Message.new_method_return(message, "as", [list(self.capabilities)])
            case "GetServerInformation":
                return Message.new_method_return(message, "ssss", [self.name, "tests", "1", "1.2"])
            case "Notify" if self.refusal:
                return Message.new_error(message, "org.freedesktop.DBus.Error.LimitsExceeded", self.refusal)
            case "Notify":
                self.calls.append(message.body)
                number = message.body[1] or max([*self.standing, self.first - 1]) + 1
                self.standing[number] = message.body[3]
                return Message.new_method_return(message, "u", [number])
            case "CloseNotification":
                self.standing.pop(message.body[0], None)
                return Message.new_method_return(message)
            case _:
                return None
