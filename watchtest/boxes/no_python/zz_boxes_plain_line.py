"""Whether a box without Python is still there: the engine is asked every few seconds. Owns the task that asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from watchtest.agent.frames import Frame
from watchtest.boxes.blocking_calls import in_daemon_thread
from watchtest.boxes.no_python.shell_tools import PlainTools
from watchtest.errors import BY_ITSELF, ChannelLost, WatchtestError

ASK_EVERY_S = 2.0
ANSWER_LIMIT_S = 6.0
CLOSE_LIMIT_S = 5.0


class Line:
    """Once lost, for whatever reason, it stays lost: the next session looks anew."""

    def __init__(self, tools: PlainTools) -> None:
        self._tools = tools
        self._lost: str | None = None
        self._heart: asyncio.Task[None] | None = None
        self._uploads = 0
        self.closed = asyncio.Event()
        self.on_lost: Callable[[str], None] = lambda _reason: None
        self.on_news: Callable[[Frame], None] = lambda _frame: None
        """Nobody says anything unasked here; it is part of the face of a channel."""

    def open(self) -> None:
        self._heart = asyncio.create_task(self._beat(), name="heartbeat of a plain box")

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def lose(self, reason: str) -> None:
        if self._lost is None:
            self._lost = reason
            self.closed.set()
            self.on_lost(reason)

    def loss(self) -> ChannelLost:
        return ChannelLost(f"lost the box: {self._lost or 'the connection has ended'}", hint=BY_ITSELF)

    @contextmanager
    def uploading(self) -> Iterator[None]:
        """An engine that unpacks an archive answers nothing else about that container."""
        self._uploads += 1
        try:
            yield
        finally:
            self._uploads -= 1

    async def close(self) -> None:
        self.lose("closed by the watcher")
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.gather(self._heart, return_exceptions=True)
        try:
            await in_daemon_thread(self._tools.close, CLOSE_LIMIT_S)
        except TimeoutError:
            return  # an engine that stalls; nobody waits for it

    async def _beat(self) -> None:
        while self._lost is None:
            await asyncio.sleep(ASK_EVERY_S)
            if self._uploads:
                continue
            try:
                reason = await in_daemon_thread(self._tools.why_gone, ANSWER_LIMIT_S)
            except WatchtestError as error:
                reason = error.message
            except TimeoutError:
                reason = f"the engine did not answer within {ANSWER_LIMIT_S:g} s"
            if reason and not self._uploads:
                self.lose(reason)
