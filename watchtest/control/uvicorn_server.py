"""uvicorn as the control server needs it: in the watcher's own event loop, without touching its signals or its log.

A connection that does not complete a request, or does not read its answer, is closed, so that it cannot hold memory or
one of the watcher's file descriptors. While many wait for a request, the oldest of them makes room for a new one.
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
from watchtest.control.sockets import BACKLOG

CONNECTIONS_LIMIT, CONNECTIONS_MIN = 1000, 64
WAITING_SHARE = 4
"""At most this fraction (1/4) of the connections may be without a complete request; as many are accepted at a time."""
FILES_SHARE = 4
"""The connections of one server may use at most this fraction (1/4) of the watcher's file descriptors."""
SHUTDOWN_LIMIT_S = 1
CHECK_INTERVAL_S = 5.0


@dataclass(frozen=True, slots=True)
class ConnectionTimeouts:
    """How long a client may take to send a complete request, and how long it may leave its answer unread."""

    request_s: float = 10.0
    read_s: float = 10.0


class ConnectionProtocol(H11Protocol):
    """One connection, with timeouts."""

    def __init__(
        self, *, timeouts: ConnectionTimeouts, waiting: dict[ConnectionProtocol, asyncio.TimerHandle], **rest: Any
    ) -> None:
        """`waiting` holds the connections of the server without a complete request, the oldest first."""
        super().__init__(**rest)
        self._timeouts = timeouts
        self._waiting = waiting
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > _connections_limit():
            transport.abort()
            return
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        self._wait_for_request()
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not (self.cycle.more_body or self.cycle.response_complete):
            self._stop_waiting()

    def _wait_for_request(self) -> None:
        """Give the client a limited time for a request. More data of an incomplete one does not prolong it."""
        if self in self._waiting:
            return
        if len(self._waiting) >= max(1, _connections_limit() // WAITING_SHARE):
            oldest = next(iter(self._waiting))
            oldest._stop_waiting()
            oldest.transport.abort()
        self._waiting[self] = self.loop.call_later(self._timeouts.request_s, self.transport.abort)

    def _stop_waiting(self) -> None:
        timer = self._waiting.pop(self, None)
        if timer is not None:
            timer.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_timer = self.loop.call_later(self._timeouts.read_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._read_timer is not None:
            self._read_timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._read_timer is not None:
            self._read_timer.cancel()
        super().connection_lost(exc)


class UvicornServer(uvicorn.Server):
    """Serves until `stopped` returns, or until `is_reachable` reports that its socket was removed."""

    def __init__(
        self,
        application: Application,
        *,
        is_reachable: Callable[[], bool],
        stopped: Callable[[], Awaitable[None]],
        timeouts: ConnectionTimeouts | None = None,
    ) -> None:
        config = uvicorn.Config(
            application,
            http=partial(ConnectionProtocol, timeouts=timeouts or ConnectionTimeouts(), waiting={}),  # type: ignore[arg-type]
            # All that are accepted at a time have a descriptor before the first of them can be closed.
            backlog=_connections_limit() // WAITING_SHARE,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=SHUTDOWN_LIMIT_S,
        )
        config.load()  # slow imports; the caller runs this in a thread
        super().__init__(config)
        self._is_reachable = is_reachable
        self._stopped = stopped

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(BACKLOG)  # asyncio keeps only as many waiting as it accepts at a time

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the watcher."""
        yield

    async def main_loop(self) -> None:
        """Wait without the ten wake-ups per second of the original, so that an idle watcher uses no CPU."""
        while self._is_reachable():
            try:
                async with asyncio.timeout(CHECK_INTERVAL_S):
                    await self._stopped()
            except TimeoutError:
                continue
            return

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for connection in list(self.server_state.connections):
            if isinstance(connection, ConnectionProtocol) and connection.flow.write_paused:
                connection.transport.abort()  # it does not read, so it would not get an answer
        await super().shutdown(sockets)


def _connections_limit() -> int:
    try:
        import resource
    except ImportError:  # not on Windows
        return CONNECTIONS_LIMIT
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return CONNECTIONS_LIMIT if soft < 0 else max(CONNECTIONS_MIN, min(CONNECTIONS_LIMIT, soft // FILES_SHARE))
