"""Fuzzed requests find no bug, and no answer that the OpenAPI document does not describe.

This needs schemathesis, in an environment of its own (`pip install -e '.[dev,fuzz]'`): merely being installed, it makes
every start of pytest half a second slower, and hundreds of tests here start one.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from support.control_server import Bench, FakeHistory, bench, old, short_folder
from support.watcher_states import failed, passed, start

from watchtest.control.address import read_token
from watchtest.control.api.openapi import document
from watchtest.control.api.operations import OPERATIONS, Operation
from watchtest.core.model import Lane, Outcome, Policy
from watchtest.views.status.status_document import WriterInfo
from watchtest.views.status.status_document import document as status_document

schemathesis = pytest.importorskip("schemathesis", reason="NOT FUZZED: install watchtest[fuzz] for it")
failures = pytest.importorskip("schemathesis.core.failures")

DOCUMENT = document("1")
EXAMPLES = 12
"""For each operation, valid and invalid ones."""


@dataclass
class Address:
    url: str
    token: str


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    """Run a watcher in a thread: it listens on TCP, its runs pass by themselves, and it has a history."""
    ready, leave = threading.Event(), threading.Event()
    found: list[Address] = []

    async def passing(watcher: Bench) -> None:
        while True:
            await asyncio.sleep(0.005)
            if watcher.runs.outcomes.empty():
                watcher.runs.outcomes.put_nowait((failed("test_a.py::test_red"),))
                watcher.runs.outcomes.put_nowait(Outcome.PASSED)

    async def serve() -> None:
        writer = WriterInfo(1, "host", "1", 1.0)
        past = FakeHistory([old(number) for number in range(1, 5)], {"old.1": [passed("test_a"), failed("test_b")]})
        with short_folder() as folder:
            async with bench(
                folder,
                Lane.SAVE,
                policy=Policy.OFF,
                past=past,
                listen="127.0.0.1:0",
                status=lambda: status_document(start(), seq=1, now=1.0, writer=writer),
            ) as watcher:
                found.append(Address((await watcher.get("/info"))["url"], read_token(folder / "token")))
                ready.set()
                going = asyncio.create_task(passing(watcher))
                await asyncio.to_thread(leave.wait)
                going.cancel()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(20)
        yield found[0]
    finally:
        leave.set()
        thread.join(20)


POSITIVE, NEGATIVE = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
# The event stream does not end by itself; test_feed.py checks it. Without input there is nothing invalid to send.
TESTED = [
    pytest.param(operation, mode, id=f"{operation.name}-{mode.value}")
    for operation in OPERATIONS
    for mode in (POSITIVE, NEGATIVE)
    if operation.name != "events" and (mode is POSITIVE or operation.query or operation.body or "{" in operation.path)
]


def explore(address: Address, described: dict[str, Any], operation: Operation, mode: Any) -> None:
    """Send what the description allows, or what it forbids, and compare every answer with it."""
    schema = schemathesis.openapi.from_dict(described)

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[operation.path][operation.method].as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        headers = {"Authorization": f"Bearer {address.token}"}
        response = case.call(base_url=address.url, headers=headers, timeout=10)
        assert response.status_code != 500, response.text
        case.validate_response(response)

    send()


@pytest.mark.parametrize(("operation", "mode"), TESTED)
def test_no_request_finds_a_bug_or_an_answer_that_is_not_described(
    address: Address, operation: Operation, mode: Any
) -> None:
    explore(address, DOCUMENT, operation, mode)


@pytest.mark.parametrize("spoil", ["a field that is not there", "an answer that is not given", "anything is allowed"])
def test_a_description_that_is_wrong_would_be_found(address: Address, spoil: str) -> None:
    described = copy.deepcopy(DOCUMENT)
    runs = described["paths"]["/runs"]["get"]
    match spoil:
        case "a field that is not there":
            described["components"]["schemas"]["Runs"]["required"].append("total")
        case "an answer that is not given":
            runs["responses"]["201"] = runs["responses"].pop("200")
        case _:
            runs["parameters"][0]["schema"] = {"type": "integer"}
    operation = next(operation for operation in OPERATIONS if operation.name == "runs")
    with pytest.raises((failures.FailureGroup, failures.Failure)):
        explore(address, described, operation, POSITIVE)
