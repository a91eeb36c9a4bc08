"""Things that are sent one after the other, beside the loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

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
