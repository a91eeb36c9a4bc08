"""Work with a box through its agent: sync its tree to a snapshot, run a job, save state.

Knows the frames, but not the engine that carries them. Our view of the tree is always the agent's last report, so a
delta is computed against the files that are really there.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import math
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

from watchtest.agent import PROTOCOL
from watchtest.agent.frames import BODY_PIECE, encode, in_pieces
from watchtest.agent.jobs.job_limits import join_output, last_resort_s
from watchtest.agent.rows import RowKind, parse_rows
from watchtest.boxes.channel import AgentChannel, Conversation
from watchtest.boxes.protocols import (
    REPORT,
    Command,
    ContentReader,
    JobResult,
    JobSpec,
    OnOutput,
    OnResults,
    PytestCommand,
    UnittestCommand,
)
from watchtest.core.model import Delta, Entry, EntryKind, Snapshot, difference
from watchtest.core.text import ID_LIMIT, OUTPUT_LIMIT
from watchtest.errors import BoxError, ChannelLost, RunOverdue

HELLO_LIMIT_S = 30.0
ANSWER_LIMIT_S = 60.0
COMMIT_LIMIT_S = 300.0
PRINTS_LIMIT_S = 120.0
WRITE_BUFFER = 512 * 1024
REPORT_LIMIT = 65 * 1024 * 1024
"""A little above the agent's own limit."""


class Session:
    """The session with one agent, from its hello to its end."""

    def __init__(self, channel: AgentChannel) -> None:
        self.channel = channel
        self.generation = 0
        self.python = ""
        self.executable = ""
        self.saved_state: Mapping[str, Any] = {}
        self.has_services = False
        """Whether a service manager runs in this box, started by us or by an earlier watcher."""
        self.is_empty = False
        self.lost_in = ""
        self._tree: dict[str, Entry] = {}
        self._lost: set[str] = set()
        """Paths from a snapshot that are missing or unreadable."""

    async def open(self) -> None:
        hello = await self.channel.greeting(HELLO_LIMIT_S)
        if hello.get("protocol") != PROTOCOL:
            raise BoxError(f"the agent speaks protocol {hello.get('protocol')!r}, this watchtest speaks {PROTOCOL}")
        self.python = str(hello.get("python", ""))[:40]
        self.executable = str(hello.get("executable", ""))[:400]
        remembered = hello.get("remembered")
        self.saved_state = remembered if isinstance(remembered, dict) else {}
        self.has_services = hello.get("has_services") is True
        self.is_empty = hello.get("is_empty") is True
        self.lost_in = str(hello.get("lost_in") or "")[:ID_LIMIT]
        await self._ask_for_rows("manifest")

    @asynccontextmanager
    async def _conversation(self) -> AsyncIterator[Conversation]:
        """Start a conversation. If it raises, the session ends, because the state of the agent is then unknown."""
        try:
            async with self.channel.conversation() as conversation:
                yield conversation
        except BaseException as error:
            self.channel.mark_lost(f"given up after: {error or type(error).__name__}")
            raise

    async def save_state(self, state: Mapping[str, Any]) -> None:
        async with self._conversation() as conversation:
            await conversation.send("remember", what=dict(state))
            await conversation.expect("remembered", ANSWER_LIMIT_S)
        self.saved_state = dict(state)

    async def apply_services(self, order: Mapping[str, Any]) -> bytes:
        """Make the services of the box match this order and return the service manager's report as JSON."""
        async with self._conversation() as conversation:
            await conversation.send("services", _json(order))
            _, body = await conversation.expect("services", ANSWER_LIMIT_S)
        self.has_services = bool(order["services"])
        return body

    # -- the tree ----------------------------------------------------------------------------------

    @property
    def path_count(self) -> int:
        return len(self._tree) + len(self._lost)

    async def refresh(self) -> None:
        await self._ask_for_rows("check")

    async def sync(self, snapshot: Snapshot, read: ContentReader) -> tuple[int, Delta]:
        delta = difference(self._tree, snapshot.entries)
        lost = tuple(self._lost - snapshot.entries.keys())
        if not delta and not lost:
            return self.generation, delta
        async with self._conversation() as conversation:
            frames = self._frames(conversation.identity, delta, lost, read)
            # Read the files in a thread, one buffer at a time, so that a large tree does not block the event loop.
            while data := await asyncio.to_thread(_next_buffer, frames):
                await self.channel.send_raw(data)
            header, _ = await conversation.expect("committed", COMMIT_LIMIT_S)
            self.generation = _generation(header)
        self._tree, self._lost = dict(snapshot.entries), set()
        return self.generation, delta

    def _frames(self, identity: int, delta: Delta, lost: tuple[str, ...], read: ContentReader) -> Iterator[bytes]:
        def frame(kind: str, body: bytes = b"", **fields: object) -> bytes:
            return encode({"t": kind, "id": identity, **fields}, body)

        yield frame("begin", base=self.generation)
        owned = self._tree.keys() | self._lost
        gone, fresh = [*delta.remove, *lost], [path for path in delta.write if path not in owned]
        for kind, named in (("remove", gone), ("claim", fresh)):
            # Send no empty frame: it would make the agent discard the runs that it has prestarted.
            for paths, _ in in_pieces(named) if named else ():
                yield frame(kind, _json(paths))
        # Shallow paths first: a file may have become a folder.
        for path in sorted(delta.write, key=lambda path: path.count("/")):
            entry = delta.write[path]
            row = [path, entry.kind.value, entry.mode, entry.size, entry.digest]
            content = b"" if entry.kind is EntryKind.FOLDER else read(path, entry)
            for start in range(0, max(len(content), 1), BODY_PIECE):
                is_last = start + BODY_PIECE >= len(content)
                yield frame("write", content[start : start + BODY_PIECE], row=row, last=is_last)
        yield frame("commit", generation=self.generation + 1)

    async def _ask_for_rows(self, question: str) -> None:
        """Update our view of the tree from the agent: `manifest` asks for all paths, `check` for changed ones."""
        async with self._conversation() as conversation:
            await conversation.send(question)
            while True:
                header, body = await conversation.expect("rows", ANSWER_LIMIT_S)
                for path, entry in map(_entry_of, _rows(body)):
                    if entry is None:
                        self._tree.pop(path, None)
                        self._lost.add(path)
                    else:
                        self._tree[path] = entry
                        self._lost.discard(path)
                if header.get("last") is True:
                    self.generation = _generation(header)
                    return

    async def fingerprints(self, python: str, paths: Collection[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        async with self._conversation() as conversation:
            await conversation.send("prints", _json(list(paths)), python=python)
            while True:
                header, body = await conversation.expect("prints", PRINTS_LIMIT_S)
                found |= {row["path"]: row for row in _rows(body) if isinstance(row, dict) and "path" in row}
                if header.get("last") is True:
                    return found

    # -- jobs --------------------------------------------------------------------------------------

    async def run(
        self, job: JobSpec, on_results: OnResults, on_output: OnOutput, stop: asyncio.Queue[bool] | None = None
    ) -> JobResult:
        async with self._conversation() as conversation:
            await conversation.send("job", _json(_job_message(job)), requires=job.requires)
            await conversation.expect("started", ANSWER_LIMIT_S)
            stopper = asyncio.create_task(_pass_on(stop, conversation), name="stop") if stop is not None else None
            try:
                return await self._until_ended(conversation, job, on_results, on_output)
            finally:
                if stopper is not None:
                    stopper.cancel()
                    await asyncio.gather(stopper, return_exceptions=True)

    async def _until_ended(
        self, conversation: Conversation, job: JobSpec, on_results: OnResults, on_output: OnOutput
    ) -> JobResult:
        # The agent enforces the limits. This one catches an agent that answers pings but never ends its job.
        limit_s = last_resort_s(job.limits.run_s, job.limits.grace_s)
        loop = asyncio.get_running_loop()
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        output = ""
        report = bytearray()
        try:
            async with asyncio.timeout(limit_s) as limit:
                while True:
                    header, body = await conversation.receive(math.inf)
                    if header["t"] == "results":
                        rows = parse_rows(body)
                        if any(row.get("k") == RowKind.RESTART for row in rows):
                            limit.reschedule(loop.time() + limit_s)  # a fresh process has the whole time again
                        on_results(rows)
                    elif header["t"] == "report":
                        report += body
                        if len(report) > REPORT_LIMIT:
                            raise ChannelLost(f"the report of the run is larger than {REPORT_LIMIT} bytes")
                    elif header["t"] == "output":
                        text = decoder.decode(body)
                        output = (output + text)[:OUTPUT_LIMIT]
                        on_output(text)
                    elif header["t"] == "ended":
                        return _job_end(header, output, bytes(report))
        except TimeoutError:
            raise RunOverdue(f"the run did not end within {limit_s:g} s, although it was stopped") from None


def _next_buffer(frames: Iterator[bytes]) -> bytes:
    """Return several frames to send in one write, or b"" when none are left."""
    buffer = bytearray()
    for frame in frames:
        buffer += frame
        if len(buffer) > WRITE_BUFFER:
            break
    return bytes(buffer)


async def _pass_on(stop: asyncio.Queue[bool], conversation: Conversation) -> None:
    while True:
        is_kill = await stop.get()
        await conversation.send("stop", kill=is_kill)


def _job_message(job: JobSpec) -> dict[str, Any]:
    message: dict[str, Any] = {
        "cwd": job.command.folder,
        "env": dict(job.env),
        "path_first": list(job.path_first),
        "limit_s": job.limits.run_s,
        "silence_s": job.limits.silence_s,
        "grace_s": job.limits.grace_s,
        "test_s": job.limits.test_s,
    }
    match job.command:
        case Command() as command:
            message["argv"] = list(command.argv)
            message["results"] = "stdout" if command.has_rows else "none"
            message["report"] = REPORT if any(REPORT in word for word in command.argv) else None
        case PytestCommand() as command:
            message["pytest"] = asdict(command)
        case UnittestCommand() as command:
            message["unittest"] = asdict(command)
    return message


# -- checking what comes out of the box ------------------------------------------------------------


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _rows(body: bytes) -> list[Any]:
    try:
        rows = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ChannelLost(f"the agent's answer is not JSON: {error}") from error
    if not isinstance(rows, list):
        raise ChannelLost("the agent's answer is not a list")
    return rows


def _entry_of(row: Any) -> tuple[str, Entry | None]:
    match row:
        case [str(path), None]:
            return path, None
        case [str(path), "file" | "symlink" | "folder" as kind, int(mode), int(size), str(digest)]:
            return path, Entry(EntryKind(kind), mode, size, digest)
        case _:
            raise ChannelLost(f"the agent sent an invalid entry: {row!r:.200}")


def _generation(header: Mapping[str, Any]) -> int:
    generation = header.get("generation")
    if not isinstance(generation, int):
        raise ChannelLost("the tree in the box is only partly updated")
    return generation


def _job_end(header: Mapping[str, Any], output: str, report: bytes) -> JobResult:
    exit_code, stopped, duration = header.get("exit_code"), header.get("stopped"), header.get("duration_s")
    dropped, tail = header.get("dropped"), str(header.get("tail", ""))[:OUTPUT_LIMIT]
    return JobResult(
        exit_code=exit_code if isinstance(exit_code, int) else None,
        stopped=stopped if stopped in ("cancelled", "killed", "timed_out") else None,
        reason=str(header.get("reason", ""))[:2000],
        output=join_output(output, dropped if isinstance(dropped, int) else 0, tail),
        stacks=str(header.get("stacks", ""))[:OUTPUT_LIMIT],
        duration_s=duration if isinstance(duration, float) and math.isfinite(duration) else 0.0,
        full_disk=str(header.get("full_disk") or "")[:400],
        current=str(header.get("current") or "")[:ID_LIMIT],
        report=report if header.get("has_report") is True else None,
        is_warm=header.get("is_warm") is True,
        cold_because=str(header.get("cold_because") or "")[:2000],
        damage=str(header.get("damage") or "")[:400],
    )
