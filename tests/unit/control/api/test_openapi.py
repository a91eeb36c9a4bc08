"""The OpenAPI document: complete, valid, and the same as the routes."""

from __future__ import annotations

import json
import re
from pathlib import Path

from starlette.routing import Route
from support.control_server import FakeHistory
from support.watcher_states import start

from watchtest.control.api.openapi import document
from watchtest.control.api.operations import OPERATIONS
from watchtest.control.api.routes import application
from watchtest.control.gateway import ApiContext, Gateway
from watchtest.views.dashboard.watcher_screen import LocalBackend, ScreenServer

DOCUMENT = document("1")


def test_every_route_is_described_and_every_description_is_served() -> None:
    async def explain(_lane: object, _what: str) -> None:
        return None

    state = start()
    gateway = Gateway(lambda: state, lambda _event: None, FakeHistory(), explain)
    screens = ScreenServer(LocalBackend(lambda: state, lambda event: None, "", ""))
    served = application(ApiContext(gateway, dict, screens, Path(), ""))
    routes = {
        (route.path, method)
        for route in served.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    described = {(path, method.upper()) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert routes == described
    design = (
        "GET /health /info /schema /status /runs /runs/{id} /runs/{id}/results /events /metrics /openapi.json /why "
    )
    design += "POST /config/validate /runs /runs/{id}/cancel /runs/{id}/kill /pause /resume"
    method, promised = "", set()
    for word in design.split():
        method = word if word in ("GET", "POST") else method
        promised |= {(word, method)} if word.startswith("/") else set()
    assert promised <= routes


def test_every_operation_says_what_it_takes_and_every_answer_and_error_it_gives() -> None:
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            assert operation["operationId"]
            assert operation["summary"]
            assert {"400", "401", "403", "500", "503"} <= operation["responses"].keys()
            assert any(status.startswith("2") for status in operation["responses"])
            named = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path))
            for answer in operation["responses"].values():
                assert answer["content"]
            if "requestBody" in operation:
                assert {"408", "413"} <= operation["responses"].keys()
    assert len({operation.name for operation in OPERATIONS}) == len(OPERATIONS)


def test_every_reference_leads_somewhere() -> None:
    text = json.dumps(DOCUMENT)
    for reference in set(re.findall(r'"\$ref": "([^"]+)"', text)):
        name = reference.removeprefix("#/components/schemas/")
        assert name in DOCUMENT["components"]["schemas"], reference
