"""How a run handles an agent's reports on services, in any order and of any shape. The agent is a script."""

from __future__ import annotations

import asyncio
import json
import queue
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from watchtest.agent import PROTOCOL
from watchtest.agent.frames import Decoder, encode
from watchtest.agent.services.restart_backoff import RestartBackoff
from watchtest.boxes.channel import AgentChannel
from watchtest.boxes.protocols import StopSignal
from watchtest.boxes.service_restart import ReadyCheck, ServiceDefinition
from watchtest.boxes.services import ProcessEnvironment, Services
from watchtest.boxes.session import Session
from watchtest.core.model import ServiceInfo, Snapshot
from watchtest.errors import ChannelLost, ServiceError

Said = tuple[dict[str, Any], bytes]
Script = Callable[[int, dict[str, Any]], Sequence[Said]]
KV = ServiceDefinition("kv", ("serve",), ReadyCheck("tcp", 1), ready_timeout_s=0.1, restart_limit=0, grace_s=0)
NOTHING = Snapshot("tree", {})


class ScriptedAgent:
    """A byte stream. `script(number, order)` returns everything that follows an order; it arrives in one piece."""

    def __init__(self, script: Script, *, has_services: bool = False) -> None:
        self._script = script
        self._decoder = Decoder()
        self._pieces: queue.Queue[bytes] = queue.Queue()
        self.orders: list[dict[str, Any]] = []
        self._say(({"t": "hello", "protocol": PROTOCOL, "has_services": has_services}, b""))

    def _say(self, *frames: Said) -> None:
        self._pieces.put(b"".join(encode(header, body) for header, body in frames))

    def read(self) -> bytes:
        return self._pieces.get()

    def write(self, data: bytes) -> None:
        for header, body in self._decoder.feed(data):
            if header["t"] == "manifest":
                self._say(({"t": "rows", "id": header["id"], "last": True, "generation": 0}, b"[]"))
            elif header["t"] == "services":
                self.orders.append(json.loads(body))
                said = self._script(len(self.orders), self.orders[-1])
                answer = {"answer": header["id"], None: None}
                self._say(*((dict(one, id=answer[one["id"]]), content) for one, content in said))

    def close(self) -> None:
        self._pieces.put(b"")

    def stderr_tail(self) -> str:
        return ""


def told(state: str, seq: int, order: dict[str, Any], *, is_answer: bool = False, **rest: Any) -> Said:
    rows = [
        {"name": one["name"], "key": one["key"], "state": state, "since": 1, "restarts": 0, **rest}
        for one in order["services"]
    ]
    header = {"t": "services", "id": "answer" if is_answer else None}
    return header, json.dumps({"services": rows, "seq": seq, "did": {}}).encode()


LOST: Said = ({"t": "services", "id": None}, b'{"lost": true, "services": []}')


def ensured(agent: ScriptedAgent, *definitions: ServiceDefinition, times: int = 1) -> list[tuple[ServiceInfo, ...]]:
    seen: list[tuple[ServiceInfo, ...]] = []

    async def act() -> None:
        channel = AgentChannel(agent)
        await channel.open()
        try:
            session = Session(channel)
            await session.open()
            services = Services(
                definitions, lambda _globs: lambda _path: False, is_tied=False, timing=RestartBackoff(slack_s=0.2)
            )
            services.on_change = seen.append
            for _ in range(times):
                await services.ensure(session, NOTHING, ProcessEnvironment({}, ()), lambda _text: None, StopSignal())
        finally:
            await channel.close()

    asyncio.run(asyncio.wait_for(act(), 30))
    return seen


def test_news_that_overtake_the_answer_are_the_last_word() -> None:
    agent = ScriptedAgent(lambda _n, order: [told("starting", 1, order, is_answer=True), told("ready", 2, order)])
    assert ensured(agent, KV)[-1][0].state == "ready"


def test_a_failure_that_overtakes_the_answer_is_told_at_once() -> None:
    def script(_number: int, order: dict[str, Any]) -> list[Said]:
        failed = told("failed", 2, order, reason="exited with code 1", tail=["last words"])
        return [told("starting", 1, order, is_answer=True), failed]

    with pytest.raises(ServiceError) as caught:
        ensured(ScriptedAgent(script), KV)
    assert caught.value.message == "service kv failed: exited with code 1\nlast words"


def test_services_are_ordered_again_when_their_manager_dies_while_they_are_waited_for() -> None:
    def script(number: int, order: dict[str, Any]) -> list[Said]:
        if number == 1:
            return [told("starting", 1, order, is_answer=True), LOST]
        return [told("ready", 2, order, is_answer=True)]

    agent = ScriptedAgent(script)
    seen = ensured(agent, KV)
    assert len(agent.orders) == 2
    assert seen[-1][0].state == "ready"


def test_a_manager_that_dies_again_and_again_is_given_up() -> None:
    agent = ScriptedAgent(lambda _n, order: [told("starting", 1, order, is_answer=True), LOST])
    with pytest.raises(ServiceError, match="killed again and again"):
        ensured(agent, KV)
    assert len(agent.orders) == 3


def test_news_that_are_none_end_the_session() -> None:
    nonsense: Said = ({"t": "services", "id": None}, b"nonsense")
    agent = ScriptedAgent(lambda _n, order: [told("starting", 1, order, is_answer=True), nonsense])
    with pytest.raises(ChannelLost, match="not JSON"):
        ensured(agent, KV)


def test_a_service_that_is_ready_with_other_files_is_not_the_one_that_was_asked_for() -> None:
    agent = ScriptedAgent(lambda _n, order: [told("ready", 1, order, is_answer=True, key="other")])
    with pytest.raises(ServiceError, match=r"service kv did not become ready within 0\.3 s"):
        ensured(agent, KV)


def test_without_services_nothing_is_ordered_but_what_is_left_of_earlier_ones_is_ended() -> None:
    agent = ScriptedAgent(lambda _n, order: [told("ready", 1, order, is_answer=True)])
    ensured(agent, times=2)
    assert agent.orders == []
    agent = ScriptedAgent(lambda _n, order: [told("ready", 1, order, is_answer=True)], has_services=True)
    ensured(agent, times=2)
    assert [order["services"] for order in agent.orders] == [[]]


def test_only_the_first_order_of_a_watcher_gives_failed_services_another_chance() -> None:
    agent = ScriptedAgent(lambda number, order: [told("ready", number, order, is_answer=True)])
    ensured(agent, KV, times=3)
    assert [order["retry"] for order in agent.orders] == [True, False, False]
