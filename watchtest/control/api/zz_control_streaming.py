"""A client that listens to the feed, as a response that ends when the client leaves or the feed lets go of it."""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from watchtest.control.feed import Listener

# Its end is the end of the connection, too: a client that waits for more would wait in vain.
HEADERS = {"cache-control": "no-store", "connection": "close", "x-accel-buffering": "no"}


class EventStream(Response):
    """Server-sent events."""

    media_type = "text/event-stream"

    def __init__(self, listener: Listener) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]  # nobody knows it
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._listener:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._stream(receive, send)
            await send({"type": "http.response.body", "body": b""})

    async def _stream(self, receive: Receive, send: Send) -> None:
        leaving = asyncio.create_task(self._until_it_leaves(receive), name="a listener of events")
        try:
            while told := await self._listener.read():
                await send({"type": "http.response.body", "body": told, "more_body": True})
        finally:
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)

    async def _until_it_leaves(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._listener.leave()
