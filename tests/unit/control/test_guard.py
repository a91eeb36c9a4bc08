"""Connections that waste resources: they send nothing, never read, or are too many."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from support.control_server import short_folder

from watchtest.control.guard import AccessRules, Application, Guard, Message, Receive, Send
from watchtest.control.sockets import SocketListener
from watchtest.control.uvicorn_server import CONNECTIONS_MIN, ConnectionTimeouts, UvicornServer

QUICK = ConnectionTimeouts(request_s=0.1, read_s=0.1)
LIMIT_S = 5.0
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def plenty(_scope: Message, _receive: Receive, send: Send) -> None:
    """Return more data than any buffer holds."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(100):
        await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def reads_all(_scope: Message, receive: Receive, send: Send) -> None:
    """Answer after the whole request."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def served(
    application: Application,
    story: Callable[[Connect, UvicornServer], Awaitable[None]],
    timeouts: ConnectionTimeouts = QUICK,
) -> None:
    async def whole() -> None:
        leaving = asyncio.Event()

        async def left() -> None:
            await leaving.wait()

        with short_folder() as folder, SocketListener([folder / "test.sock"]) as listener:
            server = UvicornServer(application, is_reachable=listener.is_reachable, stopped=left, timeouts=timeouts)
            serving = asyncio.create_task(server.serve(sockets=[listener.socket]))
            try:
                await story(lambda: asyncio.open_unix_connection(str(listener.path), limit=1000), server)
            finally:
                leaving.set()
                await asyncio.wait_for(serving, LIMIT_S)

    asyncio.run(whole())


async def until_none_is_left(server: UvicornServer) -> None:
    async with asyncio.timeout(LIMIT_S):
        while server.server_state.connections:  # noqa: ASYNC110  uvicorn offers no event for it
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"])
def test_a_connection_that_asks_for_nothing_is_closed(said: bytes) -> None:
    async def story(connect: Connect, server: UvicornServer) -> None:
        reader, writer = await connect()
        writer.write(said)
        assert await asyncio.wait_for(reader.read(), LIMIT_S) == b""
        await until_none_is_left(server)
        writer.close()

    served(reads_all, story)


@pytest.mark.parametrize("said", [GET + b"GET / HT", GET + b"\r\n", GET])
def test_a_connection_that_was_answered_is_closed_if_nothing_more_comes(said: bytes) -> None:
    async def story(connect: Connect, server: UvicornServer) -> None:
        reader, writer = await connect()
        writer.write(said)
        await asyncio.wait_for(reader.readuntil(b"ok"), LIMIT_S)
        writer.write(b"G")  # ends the waiting of uvicorn itself for another request
        await until_none_is_left(server)
        writer.close()

    served(reads_all, story)


def test_a_trickle_of_data_does_not_keep_a_connection() -> None:
    async def story(connect: Connect, server: UvicornServer) -> None:
        _, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nX: ")

        async def trickle() -> None:
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.02)

        trickling = asyncio.create_task(trickle())
        await until_none_is_left(server)
        trickling.cancel()
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()

    served(reads_all, story)


def test_hundreds_of_half_open_connections_neither_stay_nor_lock_out_a_client_nor_use_up_the_descriptors() -> None:
    """The attackers are in another process, which does not share the limit on descriptors with the server."""
    attack = (
        "import resource, socket, sys, time\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000))\n"
        "made = []\n"
        "for number in range(900):\n"
        "    made.append(socket.socket(socket.AF_UNIX))\n"
        "    made[-1].settimeout(20)\n"
        "    made[-1].connect(sys.argv[1])\n"
        "    made[-1].send(b'GET / HT'[: number % 8 + 1])\n"
        "print('made', flush=True)\n"
        "time.sleep(60)\n"
    )

    async def story(connect: Connect, server: UvicornServer) -> None:
        _, writer = await connect()
        path = str(writer.get_extra_info("peername")).removesuffix(".new")  # it was bound under another name
        writer.close()
        attacker = await asyncio.create_subprocess_exec(sys.executable, "-c", attack, path, stdout=PIPE)
        try:
            assert attacker.stdout is not None
            made, most = asyncio.create_task(attacker.stdout.readline()), 0
            async with asyncio.timeout(20):
                while not made.done():
                    most = max(most, len(os.listdir("/proc/self/fd")))  # noqa: PTH208
                    await asyncio.sleep(0)
            reader, writer = await connect()
            writer.write(GET)
            await asyncio.wait_for(reader.readuntil(b"ok"), LIMIT_S)
            writer.close()
            assert most < resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        finally:
            attacker.kill()
            await attacker.wait()
        # All that were waiting to be accepted are gone before one that comes later.
        reader, writer = await connect()
        writer.write(GET)
        await asyncio.wait_for(reader.readuntil(b"ok"), LIMIT_S)
        writer.close()
        await until_none_is_left(server)

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = 256 + len(os.listdir("/proc/self/fd"))  # noqa: PTH208  other tests of this process have opened some
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        served(reads_all, story, ConnectionTimeouts())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_connection_that_does_not_read_is_closed_and_one_that_does_is_not() -> None:
    async def story(connect: Connect, server: UvicornServer) -> None:
        stuck, stuck_writer = await connect()
        stuck_writer.transport.pause_reading()  # type: ignore[attr-defined]
        stuck_writer.write(GET)
        reader, writer = await connect()
        writer.write(GET)
        size = 0
        while size < 10_000_000:
            size += len(await asyncio.wait_for(reader.read(100_000), LIMIT_S))
        writer.close()
        await until_none_is_left(server)
        assert not stuck.at_eof()
        stuck_writer.close()

    served(plenty, story)


def test_leaving_does_not_wait_for_a_client_that_does_not_read(caplog: pytest.LogCaptureFixture) -> None:
    async def story(connect: Connect, server: UvicornServer) -> None:
        _, writer = await connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(GET)
        async with asyncio.timeout(LIMIT_S):
            while not server.server_state.tasks:  # noqa: ASYNC110  uvicorn offers no event for it
                await asyncio.sleep(0.01)
        await server.shutdown()
        writer.close()

    served(plenty, story, ConnectionTimeouts())
    assert "graceful shutdown exceeded" not in caplog.text


def test_there_are_never_more_connections_than_the_watcher_can_spare() -> None:
    async def story(connect: Connect, server: UvicornServer) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # A part of that is less than the least; twice as many, for both ends, fit into it.
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 4 * CONNECTIONS_MIN - 1), hard))
        try:
            made = [await connect() for _ in range(CONNECTIONS_MIN + 5)]
            for _, writer in made:
                writer.write(b"GET / ")
            await asyncio.sleep(0.05)
            assert len(server.server_state.connections) <= CONNECTIONS_MIN
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for _, writer in made:
            writer.close()

    served(plenty, story)


def test_requests_at_a_time_are_bounded_and_the_next_hears_why() -> None:
    async def whole() -> None:
        going = asyncio.Event()
        sent: list[Message] = []

        async def waiting(_scope: Message, _receive: Receive, _send: Send) -> None:
            await going.wait()

        async def receive() -> Message:
            raise AssertionError("the body of a refused request is not read")

        async def send(message: Message) -> None:
            sent.append(message)

        guard = Guard(waiting, AccessRules(), requests_limit=1)
        first = asyncio.create_task(guard({"headers": []}, receive, send))
        await asyncio.sleep(0)
        await guard({"headers": []}, receive, send)
        assert (sent[0]["status"], json.loads(sent[1]["body"])["code"]) == (503, "too_many")
        going.set()
        await first
        await guard({"headers": []}, receive, send)
        assert len(sent) == 2

    asyncio.run(whole())
