"""The last events of the watcher, kept in a bounded ring, and those who listen, each at its own place in it.

Nobody who listens can slow the watcher or the others: telling costs the same with one listener or with hundreds, they
are woken a few at a time, and one that falls behind the end of the ring is cut off. It may come back with the last id
it saw; where that is still in the ring, it misses nothing, else it is told so by a `reset`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from watchtest.control.api.requests import Refusal
from watchtest.control.event_messages import Kind, Told

EVENTS_LIMIT = 4000
WEIGHT_LIMIT = 4_000_000
LISTENERS_LIMIT = 400
AT_A_TIME = 20
PAUSE_S, LONGER_PAUSE_S = 0.02, 0.05
"""So many listeners are woken at once, that long after something happened, and the next ones that long after them: with
200 of them each hears of things twice a second, and a run does not notice."""
HEARTBEAT_S = 15.0
AT_ONCE = 65_536
"""Bytes after which a listener gets no more in one go."""
OPENING = b"retry: 1000\n\n"
HEARTBEAT = b": alive\n\n"


@dataclass(slots=True)
class _Entry:
    told: Told
    weight: int
    encoded: bytes = b""


class Feed:
    """Used in the loop's own thread alone. `opening` says how things stand to whoever comes without a past."""

    def __init__(
        self,
        opening: Callable[[], Iterable[Told]],
        *,
        events_limit: int = EVENTS_LIMIT,
        listeners_limit: int = LISTENERS_LIMIT,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._opening = opening
        self._events_limit = events_limit
        self._listeners_limit = listeners_limit
        self.heartbeat_s = heartbeat_s
        self._session = secrets.token_hex(4)
        self._entries: dict[int, _Entry] = {}
        self._weight = 0
        self.first, self.last = 1, 0
        """The numbers of the oldest event that is kept, and of the newest."""
        self.is_closed = False
        self.cut_off = 0
        self.listeners: set[Listener] = set()
        self._asleep: deque[Listener] = deque()
        """In the order in which they fell asleep, so that the number of the last event each has seen only grows."""
        self._waking: asyncio.TimerHandle | None = None
        self._told = (0, 0, b"", 0)
        """What was read last: from where, when this was the newest, and the answer."""

    def publish(self, told: Iterable[Told]) -> None:
        for each in told:
            self.last += 1
            self._entries[self.last] = _Entry(each, each.weight)
            self._weight += each.weight
        while self._entries and (len(self._entries) > self._events_limit or self._weight > WEIGHT_LIMIT):
            self._weight -= self._entries.pop(self.first).weight
            self.first += 1
        self._stir()

    def close(self) -> None:
        """Everybody hears what was told so far, and that this was the end."""
        if not self.is_closed:
            self.publish([Told("end", lambda: {"reason": "the watcher leaves"})])
            self.is_closed = True
            if self._waking is not None:
                self._waking.cancel()
            while self._asleep:
                self._asleep.popleft().wake()

    def listen(self, last_id: str = "") -> Listener:
        """From behind that event on, or from now on."""
        if len(self.listeners) >= self._listeners_limit:
            raise Refusal(503, "too_many", f"{self._listeners_limit} clients listen already", "try again later")
        if self.is_closed:
            raise Refusal(503, "leaving", "the watcher is leaving", "start another with: watchtest watch")
        reason = self._why_not(last_id) if last_id else ""
        if last_id and not reason:
            return Listener(self, int(last_id.partition("-")[2]), OPENING)
        missed = [Told("reset", lambda: {"reason": reason})] if reason else []
        opening = b"".join(self._encode(each, self.last) for each in (*missed, *self._opening()))
        return Listener(self, self.last, OPENING + opening)

    def _why_not(self, last_id: str) -> str:
        """Why nobody can go on behind the event of this id."""
        session, _, number = last_id.partition("-")
        if session != self._session or not (number.isascii() and number.isdigit()) or len(number) > 18:
            return "that event is of another watcher"
        if int(number) > self.last:
            return "there is no such event yet"
        if int(number) < self.first - 1:
            return f"events are kept until {self._events_limit} have followed; that one is older"
        return ""

    def read(self, seen: int) -> tuple[bytes, int]:
        """The next events behind a number, in one go, and the number of the last of them."""
        if self._told[:2] == (seen, self.last):
            return self._told[2:]  # those who are woken together mostly stand at the same place
        told, end = bytearray(), seen
        while end < self.last and len(told) < AT_ONCE:
            end += 1
            told += self._encoded(end)
        self._told = (seen, self.last, bytes(told), end)
        return self._told[2:]

    def fall_asleep(self, listener: Listener) -> None:
        """It has seen all there is."""
        self._asleep.append(listener)

    def forget(self, listener: Listener) -> None:
        if listener in self._asleep:
            self._asleep.remove(listener)

    def _stir(self, pause_s: float = PAUSE_S) -> None:
        if self._waking is None and self._asleep and self._asleep[0].seen < self.last and not self.is_closed:
            self._waking = asyncio.get_running_loop().call_later(pause_s, self._wake_some)

    def _wake_some(self) -> None:
        self._waking = None
        for _ in range(min(AT_A_TIME, len(self._asleep))):
            if self._asleep[0].seen >= self.last:
                break
            self._asleep.popleft().wake()
        self._stir(LONGER_PAUSE_S)

    def _encoded(self, number: int) -> bytes:
        entry = self._entries[number]
        if not entry.encoded:
            entry.encoded = self._encode(entry.told, number)
            self._weight += len(entry.encoded)
            entry.weight += len(entry.encoded)
        return entry.encoded

    def _encode(self, told: Told, number: int) -> bytes:
        return encoded(told.kind, f"{self._session}-{number}", json.dumps(told.document(), separators=(",", ":")))


class Listener:
    """One client of the feed while entered: `read` until it gives nothing."""

    def __init__(self, feed: Feed, seen: int, opening: bytes) -> None:
        self._feed = feed
        self.seen = seen
        self._opening = opening
        self._has_left = False
        self._awake = asyncio.Event()

    def __enter__(self) -> Self:
        self._feed.listeners.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._feed.listeners.discard(self)
        self._feed.forget(self)

    async def read(self) -> bytes:
        """What is to be sent next; nothing: this is the end, because it left, was too slow, or the watcher leaves."""
        feed = self._feed
        if self._opening:
            opening, self._opening = self._opening, b""
            return opening
        if self.seen == feed.last and not feed.is_closed and not self._has_left and not await self._sleep():
            return HEARTBEAT
        if self._has_left:
            return b""
        if self.seen < feed.first - 1:
            feed.cut_off += 1
            return b""
        told, self.seen = feed.read(self.seen)
        return told

    async def _sleep(self) -> bool:
        """Until there is more; False: the time for a sign of life has come."""
        self._awake.clear()
        self._feed.fall_asleep(self)
        try:
            async with asyncio.timeout(self._feed.heartbeat_s):
                await self._awake.wait()
        except TimeoutError:
            return False
        finally:
            self._feed.forget(self)
        return True

    def wake(self) -> None:
        self._awake.set()

    def leave(self) -> None:
        """The client is gone."""
        self._has_left = True
        self.wake()


def encoded(kind: Kind, identity: str, data: str) -> bytes:
    """As server-sent events are written; JSON holds no line breaks."""
    return f"id: {identity}\nevent: {kind}\ndata: {data}\n\n".encode("ascii")
