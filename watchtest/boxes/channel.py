"""Frames to and from an agent, with a heartbeat. Owns the stream, its reader thread and its writer thread.

Everything from the other side is untrusted: frames are bounded by the decoder, and a stream that is not made of frames
ends the channel. The end of the stream is never the end of a job: whoever waits is told that the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from watchtest.agent.frames import BadFrame, Decoder, Frame, Header, encode
from watchtest.boxes.protocols import ByteStream
from watchtest.errors import BY_ITSELF, BoxError, ChannelLost, DiskFull

PING_EVERY_S = 2.0
PONG_LIMIT_S = 6.0
"""With a ping every two seconds, whatever dies is noticed within eight."""
CLOSE_LIMIT_S = 2.0
FREE_ROOM = (
    "free room where the box lies (for Docker: `docker system df`, `docker system prune`); it is tried again by itself"
)


class Conversation:
    """The frames that carry one id, in their order."""

    def __init__(self, identity: int, channel: AgentChannel) -> None:
        self.identity = identity
        self._channel = channel
        self._inbox: asyncio.Queue[Frame | None] = asyncio.Queue()

    async def send(self, kind: str, body: bytes = b"", **fields: object) -> None:
        await self._channel.send({"t": kind, "id": self.identity, **fields}, body)

    async def receive(self, limit_s: float) -> Frame:
        """The next frame. A `failed` one is raised; so is the loss of the channel."""
        try:
            async with asyncio.timeout(limit_s):
                frame = await self._inbox.get()
        except TimeoutError as error:
            raise ChannelLost(f"the agent did not answer within {limit_s:g} s") from error
        if frame is None:
            raise self._channel.loss()
        header, _body = frame
        if header["t"] == "failed":
            raise refusal(header)
        return frame

    async def expect(self, kind: str, limit_s: float) -> Frame:
        frame = await self.receive(limit_s)
        if frame[0]["t"] != kind:
            raise ChannelLost(f"the agent answered {frame[0]['t']!r} where {kind!r} was due")
        return frame

    def deliver(self, frame: Frame | None) -> None:
        self._inbox.put_nowait(frame)


class AgentChannel:
    """`async with AgentChannel(stream) as channel` — on leaving, the connection and both threads are gone."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._conversations: dict[int, Conversation] = {}
        self._numbers = itertools.count(1)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="watchtest-write")
        self._last_heard = time.monotonic()
        self._lost: str | None = None
        self._closing: asyncio.Future[None] | None = None
        self._heart: asyncio.Task[None] | None = None
        self._greeting = Conversation(0, self)
        self.closed = asyncio.Event()
        self.on_lost: Callable[[str], None] = lambda _reason: None
        self.on_news: Callable[[Frame], None] = lambda _frame: None
        """Gets what the agent says unasked, once it has said hello."""

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = threading.Thread(target=self._read, name="watchtest-read", daemon=True)
        self._reader.start()

    async def close(self) -> None:
        self.lose("closed by the watcher")
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.gather(self._heart, return_exceptions=True)
        if self._closing is not None:
            await asyncio.wait({self._closing}, timeout=2 * CLOSE_LIMIT_S)
        await asyncio.to_thread(self._reader.join, CLOSE_LIMIT_S)
        self._writer.shutdown(wait=False, cancel_futures=True)

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def loss(self) -> ChannelLost:
        words = self._stream.last_words().strip()
        reason = self._lost or "the connection has ended"
        said = f" ({words.splitlines()[-1]})" if words else ""
        return ChannelLost(f"lost the agent in the box: {reason}{said}", hint=BY_ITSELF)

    @asynccontextmanager
    async def conversation(self) -> AsyncIterator[Conversation]:
        conversation = Conversation(next(self._numbers), self)
        if self._lost is not None:
            raise self.loss()
        self._conversations[conversation.identity] = conversation
        try:
            yield conversation
        finally:
            del self._conversations[conversation.identity]

    async def greeting(self, limit_s: float) -> Header:
        """The first frame of an agent: hello, or why it cannot serve."""
        header, _ = await self._greeting.receive(limit_s)
        if header["t"] != "hello":
            raise refusal(header)
        # Only now: an agent that waits for its predecessor to end has nothing to say before.
        self._heart = asyncio.create_task(self._beat(), name="heartbeat")
        return header

    async def send(self, header: Header, body: bytes = b"") -> None:
        await self.send_raw(encode(header, body))

    async def send_raw(self, data: bytes) -> None:
        if self._lost is not None:
            raise self.loss()
        writing: asyncio.Future[Any] = asyncio.ensure_future(
            self._loop.run_in_executor(self._writer, self._stream.write, data)
        )
        losing: asyncio.Future[Any] = asyncio.ensure_future(self.closed.wait())
        try:
            # A write that blocks does not hold up the news that the channel is lost.
            await asyncio.wait([writing, losing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            losing.cancel()
        if not writing.done():
            writing.add_done_callback(lambda future: future.cancelled() or future.exception())
            raise self.loss()
        try:
            writing.result()
        except (OSError, ValueError, RuntimeError) as error:
            self.lose(f"writing failed: {error}")
            raise self.loss() from error

    # -- the reader's side -------------------------------------------------------------------------

    def _read(self) -> None:
        decoder = Decoder()
        reason = "the connection has ended"
        try:
            while piece := self._stream.read():
                for frame in decoder.feed(piece):
                    self._loop.call_soon_threadsafe(self._receive, frame)
        except BadFrame as error:
            reason = f"the agent's stream is damaged: {error}"
        except Exception as error:  # noqa: BLE001  whatever it was, nobody may wait for this thread any longer
            reason = f"reading failed: {type(error).__name__}: {error}"
        try:
            self._loop.call_soon_threadsafe(self.lose, reason)
        except RuntimeError:
            return  # the loop has closed: nobody is left to tell

    def _receive(self, frame: Frame) -> None:
        self._last_heard = time.monotonic()
        header = frame[0]
        identity = header.get("id")
        if identity is None and header["t"] == "refused" and self._heart is not None:
            self.lose(str(header.get("message", "the agent gave up"))[:500])
        elif identity is None and self._heart is not None:
            self.on_news(frame)
        elif identity is None:
            self._greeting.deliver(frame)
        elif isinstance(identity, int) and identity in self._conversations:
            self._conversations[identity].deliver(frame)

    def lose(self, reason: str) -> None:
        """End it, for this reason; whoever waits is told. From the loop's own thread only."""
        if self._lost is not None:
            return
        self._lost = reason
        # Closing may have to wait for a process that does not listen.
        self._closing = self._loop.run_in_executor(None, self._stream.close)
        for conversation in (self._greeting, *self._conversations.values()):
            conversation.deliver(None)
        self.closed.set()
        self.on_lost(reason)

    async def _beat(self) -> None:
        """Any frame is a sign of life; a ping is sent so that there is one to hear."""
        while self._lost is None:
            began = time.monotonic()
            await asyncio.sleep(PING_EVERY_S)
            if time.monotonic() - began > 2 * PING_EVERY_S:
                self._last_heard = time.monotonic()  # it was us who stood still (Ctrl-Z, a sleep of the machine)
            silence_s = time.monotonic() - self._last_heard
            if silence_s > PONG_LIMIT_S:
                self.lose(f"no sign of life for {silence_s:.0f} s")
                return
            ping = asyncio.create_task(self.send({"t": "ping", "id": 0}))
            # A write that blocks must not stop the clock above; its own failure is already told by `send`.
            await asyncio.wait({ping}, timeout=PING_EVERY_S)
            if ping.done() and ping.exception() is not None:
                return


def refusal(header: Header) -> BoxError:
    """What the agent could not do, as our own error."""
    code = str(header.get("code", "box"))[:40]
    kind = DiskFull if code == DiskFull.code else BoxError
    error = kind(str(header.get("message", "the agent refused without a reason"))[:2000], hint=_HINTS.get(code, ""))
    error.code = code
    return error


_HINTS = {
    "workdir": "set box.workdir to a folder the box's user may write, or box.user to one who may",
    DiskFull.code: FREE_ROOM,
}
