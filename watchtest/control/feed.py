"""The latest events of the watcher in a bounded buffer, and the clients that read them, each at its own position.

A client can slow down neither the watcher nor other clients: publishing costs the same with one client or hundreds,
clients are woken a few at a time, and a client that falls out of the buffer is disconnected. It may reconnect with the
last event id it saw. If that event is still in the buffer, the client misses nothing; otherwise it gets a `reset`.

These kinds of events exist:

status    the activity, verdict, pending changes or problem of a lane has changed; sends all of them
run       a run was accepted, progressed or ended; sends its report, as GET /runs/{id} does
result    a test of a current run has ended; sends its result and number, as GET /runs/{id}/results does
box       the box of a lane, or one of its services, has changed its state
problem   a problem prevents a verdict, or (null) no longer does
note      a message to show, such as the progress of setup or a file that was left out
reset     events were missed and can no longer be sent; the client has to read everything again
end       the watcher is stopping
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Self

from watchtest.control.refusal import Refusal, stopping_refusal
from watchtest.control.result_log import NumberedResult, approximate_size
from watchtest.control.run_reports import RunReport
from watchtest.core.model import Result, Run
from watchtest.core.state import LaneState, State, Working
from watchtest.core.text import NOTE_LIMIT, cut
from watchtest.core.transitions import Fact, NoteShown, ResultsArrived, RunFinished
from watchtest.views.mood import mood
from watchtest.views.status.status_document import box_document, lane_summary, problem_document, result_document

Document = dict[str, Any]
MessageKind = Literal["status", "run", "result", "box", "problem", "note", "reset", "end"]

EVENTS_LIMIT = 4000
SIZE_LIMIT = 4_000_000
CLIENTS_LIMIT = 400
WAKE_BATCH = 20
WAKE_DELAY_S, NEXT_BATCH_DELAY_S = 0.02, 0.05
"""A batch of waiting clients is woken shortly after an event, the next batch a little later. With 200 clients each gets
events twice a second, and a run is not slowed down."""
HEARTBEAT_S = 15.0
CHUNK_BYTES = 65_536
OPENING = b"retry: 1000\n\n"
HEARTBEAT = b": alive\n\n"


class EventMessage(NamedTuple):
    """One event. Its document is created when a client reads it, and keeps no state alive.

    Every test of every run makes one, so this is a tuple, which is cheap to create.
    """

    kind: MessageKind
    document: Callable[[], Document]
    size: int = 1000


def status_message(lane: LaneState) -> EventMessage:
    waiting = {"waits_for": lane.waits_for or None, "waiting_runs": len(lane.queue.waiting)}
    document = {"lane": lane.lane.value, **lane_summary(lane), "paused": lane.is_paused, **waiting}
    return EventMessage("status", lambda: document)


def event_messages(
    before: State,
    after: State,
    facts: Sequence[Fact],
    reports: Iterable[RunReport],
    results: Mapping[str, Iterable[NumberedResult]],
) -> Iterator[EventMessage]:
    """Yield the messages about one step. Results come before the end of their run."""
    for fact in facts:
        if isinstance(fact, ResultsArrived | RunFinished):
            for number, result in results[fact.run.id]:
                yield EventMessage("result", partial(_result, fact.run, number, result), approximate_size(result))
    for report in reports:
        yield EventMessage("run", report.document)
    for lane in after.ranked:
        was = before.lanes[lane.lane]
        if was is lane:
            continue
        if was.problem != lane.problem:
            yield _lane_message("problem", lane, problem_document(lane.problem))
        if was.box.info != lane.box.info or was.box.services != lane.box.services:
            yield _lane_message("box", lane, box_document(lane))
        if _status_inputs(was) != _status_inputs(lane):
            yield status_message(lane)
    for fact in facts:
        if isinstance(fact, NoteShown):
            note = {"lane": fact.lane.value, "text": cut(fact.text, NOTE_LIMIT)}
            yield EventMessage("note", partial(dict, note))


def _lane_message(kind: Literal["problem", "box"], lane: LaneState, document: Document | None) -> EventMessage:
    return EventMessage(kind, partial(dict, {"lane": lane.lane.value, kind: document}))


def _result(run: Run, number: int, result: Result) -> Document:
    return {"run": run.id, "lane": run.lane.value, "number": number, **result_document(result)}


def _status_inputs(lane: LaneState) -> tuple[object, ...]:
    """Return everything that the status of a lane depends on. This runs after every event, so it creates no status."""
    working = lane.activity if isinstance(lane.activity, Working) else None
    return (
        type(lane.activity),
        type(working.phase) if working else None,
        working.changes if working else None,
        lane.is_paused,
        lane.pending,
        mood(lane),
        lane.knowledge.verdict,
        lane.knowledge.at,
        lane.provisional,
        lane.waits_for,
        len(lane.queue.waiting),
        lane.problem,
    )


@dataclass(slots=True)
class _FeedEntry:
    message: EventMessage
    size: int
    encoded: bytes = b""


class Feed:
    """The buffer. Not thread-safe. `status` returns the messages that a client without a last event id gets first."""

    def __init__(
        self,
        status: Callable[[], Iterable[EventMessage]],
        *,
        events_limit: int = EVENTS_LIMIT,
        clients_limit: int = CLIENTS_LIMIT,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._status = status
        self._events_limit = events_limit
        self._clients_limit = clients_limit
        self.heartbeat_s = heartbeat_s
        self._session = secrets.token_hex(4)
        self._entries: dict[int, _FeedEntry] = {}
        self._size = 0
        self.first, self.last = 1, 0
        """The numbers of the oldest and the newest event in the buffer."""
        self.is_closed = False
        self.disconnects = 0
        self.clients: set[FeedClient] = set()
        self._waiting: deque[FeedClient] = deque()
        """In the order in which they began to wait, so their positions only increase."""
        self._wake_timer: asyncio.TimerHandle | None = None
        self._last_read = (0, 0, b"", 0)
        """The arguments and the result of the last read: position, newest event; bytes, new position."""

    def publish(self, messages: Iterable[EventMessage]) -> None:
        for message in messages:
            self.last += 1
            self._entries[self.last] = _FeedEntry(message, message.size)
            self._size += message.size
        while self._entries and (len(self._entries) > self._events_limit or self._size > SIZE_LIMIT):
            self._size -= self._entries.pop(self.first).size
            self.first += 1
        self._schedule_wake()

    def close(self) -> None:
        """Publish the end. Every client still gets all events up to it."""
        if not self.is_closed:
            self.publish([EventMessage("end", lambda: {"reason": "the watcher is stopping"})])
            self.is_closed = True
            if self._wake_timer is not None:
                self._wake_timer.cancel()
            while self._waiting:
                self._waiting.popleft().wake()

    def connect(self, last_id: str = "") -> FeedClient:
        """Return a client that reads the events after `last_id`, or from now on."""
        if len(self.clients) >= self._clients_limit:
            raise Refusal(503, "too_many", f"{self._clients_limit} clients are connected already", "try again later")
        if self.is_closed:
            raise stopping_refusal()
        reason = self._reset_reason(last_id) if last_id else ""
        if last_id and not reason:
            return FeedClient(self, int(last_id.partition("-")[2]), OPENING)
        reset = [EventMessage("reset", lambda: {"reason": reason})] if reason else []
        opening = b"".join(self._encode(message, self.last) for message in (*reset, *self._status()))
        return FeedClient(self, self.last, OPENING + opening)

    def _reset_reason(self, last_id: str) -> str:
        """Return why a client cannot continue after this event; empty if it can."""
        session, _, number = last_id.partition("-")
        if session != self._session or not (number.isascii() and number.isdigit()) or len(number) > 18:
            return "this event is from another watcher"
        if int(number) > self.last:
            return "this event does not exist yet"
        if int(number) < self.first - 1:
            return f"this event is too old; at most {self._events_limit} events are kept"
        return ""

    def read(self, position: int) -> tuple[bytes, int]:
        """Return the next chunk of events after a position, and the position after it."""
        if self._last_read[:2] == (position, self.last):
            return self._last_read[2:]  # clients that are woken together are mostly at the same position
        chunk, end = bytearray(), position
        while end < self.last and len(chunk) < CHUNK_BYTES:
            end += 1
            chunk += self._encoded(end)
        self._last_read = (position, self.last, bytes(chunk), end)
        return self._last_read[2:]

    def wait(self, client: FeedClient) -> None:
        """Wake this client, which has read everything, when there are new events."""
        self._waiting.append(client)

    def stop_waiting(self, client: FeedClient) -> None:
        if client in self._waiting:
            self._waiting.remove(client)

    def _schedule_wake(self, delay_s: float = WAKE_DELAY_S) -> None:
        has_news = bool(self._waiting) and self._waiting[0].position < self.last
        if self._wake_timer is None and has_news and not self.is_closed:
            self._wake_timer = asyncio.get_running_loop().call_later(delay_s, self._wake_batch)

    def _wake_batch(self) -> None:
        self._wake_timer = None
        for _ in range(min(WAKE_BATCH, len(self._waiting))):
            if self._waiting[0].position >= self.last:
                break
            self._waiting.popleft().wake()
        self._schedule_wake(NEXT_BATCH_DELAY_S)

    def _encoded(self, number: int) -> bytes:
        entry = self._entries[number]
        if not entry.encoded:
            entry.encoded = self._encode(entry.message, number)
            self._size += len(entry.encoded)
            entry.size += len(entry.encoded)
        return entry.encoded

    def _encode(self, message: EventMessage, number: int) -> bytes:
        data = json.dumps(message.document(), separators=(",", ":"))  # without line breaks
        return f"id: {self._session}-{number}\nevent: {message.kind}\ndata: {data}\n\n".encode("ascii")


class FeedClient:
    """A client of the feed while entered; `read` returns nothing at the end."""

    def __init__(self, feed: Feed, position: int, opening: bytes) -> None:
        self._feed = feed
        self.position = position
        self._opening = opening
        self._has_left = False
        self._wake = asyncio.Event()

    def __enter__(self) -> Self:
        self._feed.clients.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._feed.clients.discard(self)
        self._feed.stop_waiting(self)

    async def read(self) -> bytes:
        """Return what to send next; nothing once the client left or was too slow, or the watcher stops."""
        feed = self._feed
        if self._opening:
            opening, self._opening = self._opening, b""
            return opening
        if self.position == feed.last and not feed.is_closed and not self._has_left and not await self._wait():
            return HEARTBEAT
        if self._has_left:
            return b""
        if self.position < feed.first - 1:
            feed.disconnects += 1
            return b""
        chunk, self.position = feed.read(self.position)
        return chunk

    async def _wait(self) -> bool:
        """Wait for new events. Return False if it is time for a heartbeat."""
        self._wake.clear()
        self._feed.wait(self)
        try:
            async with asyncio.timeout(self._feed.heartbeat_s):
                await self._wake.wait()
        except TimeoutError:
            return False
        finally:
            self._feed.stop_waiting(self)
        return True

    def wake(self) -> None:
        self._wake.set()

    def leave(self) -> None:
        """End `read`, because the client has disconnected."""
        self._has_left = True
        self.wake()
