"""Exchange frames with an agent, with a heartbeat. Owns the stream, its reader thread and its writer thread.

Everything that the agent sends is untrusted: the decoder bounds the frames, and a damaged stream ends the channel.
The end of the stream is never the end of a job: callers that wait get a ChannelLost, because the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from watchtest.agent.frames import BadFrame, Decoder, Frame, Header, encode
from watchtest.boxes.protocols import ByteStream
from watchtest.errors import BY_ITSELF, BoxDamaged, BoxError, ChannelLost, DiskFull

PING_EVERY_S = 2.0
PONG_LIMIT_S = 6.0
"""With a ping every 2 s, a dead agent is noticed within 8 s."""
REVIVED_LIMIT_S = 2.0
"""How soon an agent must answer after its process was continued."""
CLOSE_LIMIT_S = 2.0
FREE_DISK_HINT = (
    "free disk space for the box (for Docker: `docker system df`, `docker system prune`); watchtest retries by itself"
)


class Conversation:
    """The frames that carry one id, in order."""

    def __init__(self, identity: int, channel: AgentChannel) -> None:
        self.identity = identity
        self._channel = channel
        self._inbox: asyncio.Queue[Frame | None] = asyncio.Queue()

    async def send(self, kind: str, body: bytes = b"", **fields: object) -> None:
        await self._channel.send({"t": kind, "id": self.identity, **fields}, body)

    async def receive(self, limit_s: float) -> Frame:
        """Return the next frame. Raise if it is a `failed` frame or if the channel is lost."""
        try:
            async with asyncio.timeout(limit_s):
                frame = await self._inbox.get()
        except TimeoutError as error:
            raise ChannelLost(f"the agent did not answer within {limit_s:g} s") from error
        if frame is None:
            raise self._channel.lost_error()
        header, _body = frame
        if header["t"] == "failed":
            raise agent_error(header)
        return frame

    async def expect(self, kind: str, limit_s: float) -> Frame:
        frame = await self.receive(limit_s)
        if frame[0]["t"] != kind:
            raise ChannelLost(f"the agent answered {frame[0]['t']!r} instead of {kind!r}")
        return frame

    def deliver(self, frame: Frame | None) -> None:
        self._inbox.put_nowait(frame)


class AgentChannel:
    """The connection to one agent, from `open` to `close`."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._conversations: dict[int, Conversation] = {}
        self._numbers = itertools.count(1)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="watchtest-write")
        self._last_heard = time.monotonic()
        self._lost: str | None = None
        self._closing: asyncio.Future[None] | None = None
        self._heartbeat: asyncio.Task[None] | None = None
        self._greeting = Conversation(0, self)
        self.closed = asyncio.Event()
        self.on_lost: Callable[[str], None] = lambda _reason: None
        self.on_push: Callable[[Frame], None] = lambda _frame: None
        """Receives what the agent sends unasked, after its hello."""
        self.revive: Callable[[], Awaitable[bool]] = _revive_nothing
        """Continues the processes of the box if they are stopped; returns whether any was."""
        self.on_revived: Callable[[], None] = lambda: None
        self.was_stopped = False
        """The channel was lost because the processes of the box are stopped, again and again."""

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = threading.Thread(target=self._read, name="watchtest-read", daemon=True)
        self._reader.start()

    async def close(self) -> None:
        self.mark_lost("closed by the watcher")
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            await asyncio.gather(self._heartbeat, return_exceptions=True)
        if self._closing is not None:
            await asyncio.wait({self._closing}, timeout=2 * CLOSE_LIMIT_S)
        await asyncio.to_thread(self._reader.join, CLOSE_LIMIT_S)
        self._writer.shutdown(wait=False, cancel_futures=True)

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def lost_error(self) -> ChannelLost:
        stderr = self._stream.stderr_tail().strip()
        reason = self._lost or "the connection has ended"
        last_line = f" ({stderr.splitlines()[-1]})" if stderr else ""
        return ChannelLost(f"lost the agent in the box: {reason}{last_line}", hint=BY_ITSELF)

    @asynccontextmanager
    async def conversation(self) -> AsyncIterator[Conversation]:
        conversation = Conversation(next(self._numbers), self)
        if self._lost is not None:
            raise self.lost_error()
        self._conversations[conversation.identity] = conversation
        try:
            yield conversation
        finally:
            del self._conversations[conversation.identity]

    async def greeting(self, limit_s: float) -> Header:
        """Return the hello of the agent, its first frame; raise if it reports an error instead."""
        header, _ = await self._greeting.receive(limit_s)
        if header["t"] != "hello":
            raise agent_error(header)
        # Not earlier: an agent that waits for its predecessor to end answers no ping.
        self._heartbeat = asyncio.create_task(self._beat(), name="heartbeat")
        return header

    async def send(self, header: Header, body: bytes = b"") -> None:
        await self.send_raw(encode(header, body))

    async def send_raw(self, data: bytes) -> None:
        if self._lost is not None:
            raise self.lost_error()
        writing: asyncio.Future[Any] = asyncio.ensure_future(
            self._loop.run_in_executor(self._writer, self._stream.write, data)
        )
        losing: asyncio.Future[Any] = asyncio.ensure_future(self.closed.wait())
        try:
            # Notice a lost channel even while the write blocks.
            await asyncio.wait([writing, losing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            losing.cancel()
        if not writing.done():
            writing.add_done_callback(lambda future: future.cancelled() or future.exception())
            raise self.lost_error()
        try:
            writing.result()
        except (OSError, ValueError, RuntimeError) as error:
            self.mark_lost(f"writing failed: {error}")
            raise self.lost_error() from error

    def _read(self) -> None:
        decoder = Decoder()
        reason = "the connection has ended"
        try:
            while piece := self._stream.read():
                for frame in decoder.feed(piece):
                    self._loop.call_soon_threadsafe(self._receive, frame)
        except BadFrame as error:
            reason = f"the agent's stream is damaged: {error}"
        except Exception as error:  # noqa: BLE001  any failure of this thread ends the channel
            reason = f"reading failed: {type(error).__name__}: {error}"
        try:
            self._loop.call_soon_threadsafe(self.mark_lost, reason)
        except RuntimeError:
            return  # the loop is closed

    def _receive(self, frame: Frame) -> None:
        self._last_heard = time.monotonic()
        header = frame[0]
        identity = header.get("id")
        if identity is None and header["t"] == "refused" and self._heartbeat is not None:
            self.mark_lost(str(header.get("message", "the agent gave up"))[:500])
        elif identity is None and self._heartbeat is not None:
            self.on_push(frame)
        elif identity is None:
            self._greeting.deliver(frame)
        elif isinstance(identity, int) and identity in self._conversations:
            self._conversations[identity].deliver(frame)

    def mark_lost(self, reason: str) -> None:
        """End the channel; every pending call raises. Call it only from the thread of the event loop."""
        if self._lost is not None:
            return
        self._lost = reason
        # In a thread: closing may wait for a process that does not react.
        self._closing = self._loop.run_in_executor(None, self._stream.close)
        for conversation in (self._greeting, *self._conversations.values()):
            conversation.deliver(None)
        self.closed.set()
        self.on_lost(reason)

    async def _answers_when_revived(self) -> bool:
        """Continue the processes of the box if a test has stopped them; return whether the agent answers again."""
        before = self._last_heard
        if not await self.revive():
            return False
        self.was_stopped = True
        await asyncio.sleep(REVIVED_LIMIT_S)
        if self._last_heard == before:
            return False
        self.was_stopped = False
        self.on_revived()
        return True

    async def _beat(self) -> None:
        """Send pings, and end the channel if no frame of any kind arrives in time."""
        while self._lost is None:
            began = time.monotonic()
            await asyncio.sleep(PING_EVERY_S)
            if time.monotonic() - began > 2 * PING_EVERY_S:
                self._last_heard = time.monotonic()  # this process was suspended (Ctrl-Z, sleep of the machine)
            silence_s = time.monotonic() - self._last_heard
            if silence_s > PONG_LIMIT_S:
                if await self._answers_when_revived():
                    continue
                self.mark_lost("its processes are stopped" if self.was_stopped else f"no answer for {silence_s:.0f} s")
                return
            ping = asyncio.create_task(self.send({"t": "ping", "id": 0}))
            # A blocked write must not stop the clock above. `send` has already reported its own failure.
            await asyncio.wait({ping}, timeout=PING_EVERY_S)
            if ping.done() and ping.exception() is not None:
                return


async def _revive_nothing() -> bool:
    return False


def agent_error(header: Header) -> BoxError:
    """Return the error that the agent reports in this header."""
    code = str(header.get("code", "box"))[:40]
    kind = next((kind for kind in (DiskFull, BoxDamaged) if kind.code == code), BoxError)
    error = kind(str(header.get("message", "the agent gave no reason"))[:2000], hint=_HINTS.get(code, ""))
    error.code = code
    return error


_HINTS = {
    "workdir": "set box.workdir to a folder that the box's user can write, or set box.user to a user who can",
    DiskFull.code: FREE_DISK_HINT,
}
