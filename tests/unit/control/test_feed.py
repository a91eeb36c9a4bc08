"""The event stream over a real socket: what it sends, how a client continues, and that no client delays others."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest
from support.control_server import TEST, Bench, bench, play, short_folder
from support.event_client import EventClient, ReceivedEvent, listening
from support.watcher_states import BOX, failed, passed

from watchtest.client.watcher import RequestRefused
from watchtest.control.api.request_models import component_name
from watchtest.control.api.response_models import EVENTS
from watchtest.control.feed import WAKE_BATCH, EventMessage, Feed
from watchtest.control.refusal import Refusal
from watchtest.core.events import BoxConnected, BoxLost, NoteAdded
from watchtest.core.model import Lane, Outcome, Policy, Problem, Result


def socket_of(watcher: Bench) -> Path:
    return watcher.client.paths[0]


def test_a_run_is_told_from_queue_to_end_with_each_result_and_every_event_has_its_shape() -> None:
    async def story(watcher: Bench) -> None:
        async with listening(socket_of(watcher)) as client:
            assert (client.status, client.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
            opening = await client.next()
            assert opening is not None
            assert (opening.kind, opening.data["activity"], opening.data["verdict"]) == (
                "status",
                "starting",
                "unknown",
            )
            requested = await watcher.post("/runs", {"tests": [TEST]})
            watcher.runs.outcomes.put_nowait((failed("test_a.py::test_red"), passed("test_a.py::test_green")))
            watcher.runs.outcomes.put_nowait(Outcome.PASSED)
            watcher.loop.post(BoxConnected(Lane.SAVE, time.time(), BOX))
            watcher.loop.post(NoteAdded(Lane.SAVE, time.time(), "setting up \x1b[31mred"))
            received = [opening]
            while not (received[-1].kind == "status" and received[-1].data["activity"] == "idle"):
                each = await client.next()
                assert each is not None
                received.append(each)
        states = [each.data["state"] for each in received if each.kind == "run"]
        assert states[0] == "syncing"
        assert states[-1] == "failed"
        assert all(each.data["id"] == requested["id"] for each in received if each.kind == "run")
        results = [each.data for each in received if each.kind == "result"]
        assert [(each["number"], each["outcome"]) for each in results] == [(1, "failed"), (2, "passed"), (3, "passed")]
        assert (results[0]["failure"]["file"], results[0]["failure"]["line"]) == ("test_a.py", 14)
        (note,) = [each.data for each in received if each.kind == "note"]
        assert note["text"] == "setting up red"
        assert any(each.kind == "box" and each.data["box"]["engine"] == "docker" for each in received)
        await assert_matches_schema(watcher, received)

    play(story, policy=Policy.OFF)


async def assert_matches_schema(watcher: Bench, received: list[ReceivedEvent]) -> None:
    document = await watcher.get("/openapi.json")
    for each in received:
        schema = {**document, "$ref": f"#/components/schemas/{component_name(EVENTS[each.kind].__name__)}"}
        jsonschema.validate(each.data, schema, jsonschema.Draft202012Validator)


def test_a_box_that_is_lost_is_told_with_its_problem() -> None:
    async def story(watcher: Bench) -> None:
        watcher.loop.post(BoxConnected(Lane.SAVE, time.time(), BOX))
        await watcher.post("/runs")
        watcher.runs.outcomes.put_nowait(Outcome.PASSED)
        async with listening(socket_of(watcher)) as client:
            await watcher.until("it rests", lambda: watcher.loop.state.top.runs.last is not None)
            watcher.loop.post(BoxLost(Lane.SAVE, time.time(), Problem("gone", "the container is gone")))
            problem = await client.until("problem")
            assert problem.data["problem"]["message"] == "the container is gone"
            status = await client.until("status", activity="degraded")
            await assert_matches_schema(watcher, [problem, status])

    play(story)


def test_a_client_that_reconnects_with_the_last_id_misses_nothing_and_gets_nothing_twice() -> None:
    async def story(watcher: Bench) -> None:
        async with listening(socket_of(watcher)) as client:
            await watcher.post("/pause")
            seen = await client.until("status", paused=True)
        await watcher.post("/resume")
        await watcher.post("/pause", {"lane": "save"})
        async with listening(socket_of(watcher), seen.id) as client:
            received = [await client.next(), await client.next()]
        assert [each.data["paused"] for each in received if each] == [False, True]

    play(story, policy=Policy.OFF)


@pytest.mark.parametrize("last_id", ["ffffffff-1", "nonsense", "-", "x" * 5000, "٣-٣"])
def test_an_id_of_another_watcher_is_answered_by_a_reset_and_how_things_stand(last_id: str) -> None:
    async def story(watcher: Bench) -> None:
        async with listening(socket_of(watcher), last_id) as client:
            reset, status = await client.next(), await client.next()
        assert reset is not None
        assert status is not None
        assert (reset.kind, reset.data) == ("reset", {"reason": "this event is from another watcher"})
        assert status.kind == "status"
        await assert_matches_schema(watcher, [reset, status])

    play(story, policy=Policy.OFF)


def test_an_id_that_is_too_old_is_answered_by_a_reset() -> None:
    async def whole() -> None:
        with short_folder() as folder:
            async with bench(folder, policy=Policy.OFF, events_limit=10) as watcher:
                async with listening(socket_of(watcher)) as client:
                    await watcher.post("/pause")
                    seen = await client.until("status", paused=True)
                for number in range(20):
                    watcher.loop.post(NoteAdded(Lane.SAVE, time.time(), f"line {number}"))
                await watcher.until("all is told", lambda: watcher.gateway.feed.last >= 20)
                async with listening(socket_of(watcher), seen.id) as client:
                    reset = await client.next()
                    assert reset is not None
                    assert (reset.kind, "10" in reset.data["reason"]) == ("reset", True)
                    watcher.loop.post(NoteAdded(Lane.SAVE, time.time(), "after it"))
                    assert (await client.until("note")).data["text"] == "after it"

    asyncio.run(whole())


def test_the_end_of_the_watcher_is_told_and_ends_the_stream() -> None:
    async def whole() -> None:
        with short_folder() as folder:
            async with bench(folder, policy=Policy.OFF) as watcher, listening(socket_of(watcher)) as client:
                watcher.loop.quit()
                received = await client.rest()
        assert (received[-1].kind, received[-1].data) == ("end", {"reason": "the watcher is stopping"})

    asyncio.run(whole())


def test_a_listener_gets_signs_of_life_when_nothing_happens() -> None:
    async def story(watcher: Bench) -> None:
        watcher.gateway.feed.heartbeat_s = 0.02
        async with listening(socket_of(watcher)) as client:
            assert (await client.block()).startswith("retry:")
            blocks = [await client.block() for _ in range(4)]
            assert [block for block in blocks if block.startswith(":")] == [": alive"] * 3

    play(story, policy=Policy.OFF)


def test_a_client_that_leaves_is_forgotten() -> None:
    async def story(watcher: Bench) -> None:
        async with listening(socket_of(watcher)) as client:
            await client.next()
            assert len(watcher.gateway.feed.clients) == 1
        await watcher.until("it is forgotten", lambda: not watcher.gateway.feed.clients)

    play(story, policy=Policy.OFF)


def test_two_hundred_clients_hear_every_run_while_one_is_stuck_and_is_disconnected() -> None:
    """tests/bench/event_clients.py measures what they cost a run."""
    long = tuple(failed(f"test_a.py::test_{number}", output="x" * 8000) for number in range(50))
    tests = tuple(passed(f"test_a.py::test_{number}") for number in range(20))

    async def received_results(client: EventClient, run: str) -> list[int]:
        numbers = []
        while (received := await client.next()) is not None:
            if received.kind == "result":
                numbers.append(received.data["number"])
            if received.kind == "run" and received.data["id"] == run and received.data["ended"]:
                break
        return numbers

    async def whole() -> None:
        with short_folder() as folder:
            async with bench(folder, policy=Policy.OFF, events_limit=100) as watcher, AsyncExitStack() as stack:

                async def listener() -> EventClient:
                    return await stack.enter_async_context(listening(socket_of(watcher)))

                async def run(*results: Result) -> str:
                    requested = await watcher.post("/runs")
                    watcher.runs.outcomes.put_nowait(results)
                    watcher.runs.outcomes.put_nowait(Outcome.PASSED)
                    return str(requested["id"])

                stuck, feed = await listener(), watcher.gateway.feed
                (held_up,) = feed.clients
                stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]
                await watcher.end_of(await run(*long))  # more than fits between the two
                clients = [await listener() for _ in range(199)]
                for _ in range(2):
                    name = await run(*tests)
                    numbers = await asyncio.gather(*(received_results(client, name) for client in clients))
                    assert numbers == [list(range(1, len(tests) + 2))] * len(clients)
                for number in range(100):
                    watcher.loop.post(NoteAdded(Lane.SAVE, time.time(), f"line {number}"))
                await watcher.until("the stuck one fell behind", lambda: held_up.position < feed.first - 1)
                assert (await watcher.get("/health"))["status"] == "ok"
                stuck.writer.transport.resume_reading()  # type: ignore[attr-defined]
                with suppress(ConnectionError):  # on a slow machine it was already given up
                    await stuck.rest()
                await watcher.until("it is cut off", lambda: held_up not in feed.clients)

    asyncio.run(whole())


# -- the feed by itself ----------------------------------------------------------------------------


def note(number: int) -> EventMessage:
    return EventMessage("note", lambda: {"number": number})


def test_a_listener_that_fell_behind_the_ring_is_let_go() -> None:
    async def whole() -> None:
        feed = Feed(list, events_limit=5)
        with feed.connect() as listener:
            assert (await listener.read()).startswith(b"retry:")
            feed.publish(map(note, range(5)))
            assert (await listener.read()).count(b"event: note") == 5
            feed.publish(map(note, range(6)))
            assert await listener.read() == b""
        assert feed.disconnects == 1

    asyncio.run(whole())


def test_no_more_than_a_few_are_woken_at_once_and_all_of_them_in_turn() -> None:
    async def whole() -> None:
        feed = Feed(list)
        count = WAKE_BATCH * 3 + 1
        order: list[int] = []

        async def hear(number: int) -> None:
            with feed.connect() as listener:
                await listener.read()
                assert b"event: note" in await listener.read()
                order.append(number)

        tasks = [asyncio.create_task(hear(number)) for number in range(count)]
        await asyncio.sleep(0.01)
        feed.publish([note(1)])
        seen = []
        while len(order) < count:
            seen.append(len(order))
            await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)
        assert order == list(range(count))
        steps = [after - before for before, after in pairwise(seen)]
        assert max(steps) <= WAKE_BATCH

    asyncio.run(whole())


def test_the_number_of_listeners_is_bounded() -> None:
    async def whole() -> None:
        feed = Feed(list, clients_limit=1)
        with feed.connect():
            with pytest.raises(Refusal) as refused:
                feed.connect()
            assert (refused.value.status, refused.value.code) == (503, "too_many")
        with feed.connect():
            pass

    asyncio.run(whole())


def test_parameters_of_the_stream_are_refused() -> None:
    async def story(watcher: Bench) -> None:
        with pytest.raises(RequestRefused, match="unknown parameter"):
            await watcher.get("/events?after=1")

    play(story, policy=Policy.OFF)
