"""uvicorn, as the control server needs it: in the watcher's own loop, leaving its signals and its log alone.

A connection that takes nothing of what it asked for, or asks for nothing, is closed: it must not hold on to memory or
to one of the files that the watcher may have open.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from watchtest.control.guard import Application

CONNECTIONS_LIMIT, CONNECTIONS_LEAST = 1000, 64
FILES_SHARE = 4
"""Of the files that the watcher may have open, the connections of one server take this part at most."""
GOODBYE_S = 1
LOOK_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a connection may say nothing after it was made, and how long it may leave unread what it was sent."""

    silence_s: float = 30.0
    stall_s: float = 10.0


class Protocol(H11Protocol):
    """One connection."""

    def __init__(self, *, patience: Patience, **rest: Any) -> None:
        super().__init__(**rest)
        self._patience = patience
        self.silence: asyncio.TimerHandle | None = None
        self.stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > _connections_limit():
            transport.abort()
            return
        self.silence = self.loop.call_later(self._patience.silence_s, transport.abort)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and self.silence is not None:
            self.silence.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.stall = self.loop.call_later(self._patience.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.stall is not None:
            self.stall.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self.silence, self.stall):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)


class Server(uvicorn.Server):
    """Serves until `leaving` returns, or until `is_there` says that nobody can find its socket any more."""

    def __init__(
        self,
        application: Application,
        *,
        is_there: Callable[[], bool],
        leaving: Callable[[], Awaitable[None]],
        patience: Patience | None = None,
    ) -> None:
        config = uvicorn.Config(
            application,
            http=partial(Protocol, patience=patience or Patience()),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=GOODBYE_S,
        )
        config.load()  # imports the rest: whoever makes a server does so beside the loop
        super().__init__(config)
        self._is_there = is_there
        self._leaving = leaving

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the watcher's."""
        yield

    async def main_loop(self) -> None:
        """Without the ten ticks a second of the original: a watcher at rest rests."""
        while self._is_there():
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._leaving()
            except TimeoutError:
                continue
            return

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for connection in list(self.server_state.connections):
            if isinstance(connection, Protocol) and connection.flow.write_paused:
                connection.transport.abort()  # it does not read: nothing that is said to it now would be heard
        await super().shutdown(sockets)


def _connections_limit() -> int:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return CONNECTIONS_LIMIT
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return CONNECTIONS_LIMIT if soft < 0 else max(CONNECTIONS_LEAST, min(CONNECTIONS_LIMIT, soft // FILES_SHARE))
