"""uvicorn, as the control server needs it: in the watcher's own loop, leaving its signals and its log alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

CONNECTIONS_LIMIT = 200
GOODBYE_S = 1
LOOK_EVERY_S = 5.0


class Server(uvicorn.Server):
    """Serves until `leaving` returns, or until `is_there` says that nobody can find its socket any more."""

    def __init__(
        self, application: Starlette, *, is_there: Callable[[], bool], leaving: Callable[[], Awaitable[None]]
    ) -> None:
        config = uvicorn.Config(
            application,
            http="h11",
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            limit_concurrency=CONNECTIONS_LIMIT,
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
