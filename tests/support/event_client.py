"""A client of the event stream that reads as slowly, or as little, as a test needs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT_S = 10.0


@dataclass(frozen=True)
class ReceivedEvent:
    id: str
    kind: str
    data: dict[str, Any]


class EventClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}

    async def begin(self) -> None:
        head = (await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), LIMIT_S)).decode()
        first, *lines = head.strip().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}

    async def block(self) -> str:
        """Return the text up to the next empty line; empty at the end of the stream."""
        lines: list[str] = []
        while True:
            line = (await asyncio.wait_for(self._reader.readline(), LIMIT_S)).decode()
            if not line:
                return ""
            text = line.rstrip("\r\n")
            if text.startswith(("id:", "event:", "data:", "retry:", ":")):
                lines.append(text)
            elif not text and lines:
                return "\n".join(lines)
            # everything else is HTTP's chunked encoding

    async def next(self) -> ReceivedEvent | None:
        """Return the next event; None at the end of the stream."""
        while block := await self.block():
            fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
            if "event" in fields:
                return ReceivedEvent(fields["id"], fields["event"], json.loads(fields["data"]))
        return None

    async def until(self, kind: str, **wanted: object) -> ReceivedEvent:
        """Return the first event of this kind with these members."""
        while (event := await self.next()) is not None:
            if event.kind == kind and wanted.items() <= event.data.items():
                return event
        raise AssertionError(f"the stream ended without {kind} {wanted}")

    async def rest(self) -> list[ReceivedEvent]:
        """Return all events until the stream ends."""
        events = []
        while (event := await self.next()) is not None:
            events.append(event)
        return events


@asynccontextmanager
async def listening(socket: Path, last_id: str = "") -> AsyncIterator[EventClient]:
    reader, writer = await asyncio.open_unix_connection(str(socket))
    after = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
    writer.write(f"GET /events HTTP/1.1\r\nHost: localhost\r\n{after}\r\n".encode())
    client = EventClient(reader, writer)
    try:
        await client.begin()
        yield client
    finally:
        writer.close()
