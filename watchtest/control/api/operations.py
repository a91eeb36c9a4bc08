"""Every route of the API, described once: the server serves these, and the OpenAPI document is generated from them.

To add a route, add an entry here and a handler of the same name in `routes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel

from watchtest.control.api import request_models, response_models
from watchtest.control.api.requests import BODY_LIMIT, CONFIG_LIMIT


@dataclass(frozen=True, slots=True)
class TextBody:
    """An answer that is not JSON."""

    media_type: str


@dataclass(frozen=True, slots=True)
class NamedSchema:
    """A JSON document whose schema is not one of our models, but a component of this name."""

    name: str


ResponseBody = type[BaseModel] | TextBody | NamedSchema


@dataclass(frozen=True, slots=True)
class Operation:
    """A route, with its answers and errors by status. Errors that every request can cause are not listed here."""

    name: str
    method: str
    path: str
    summary: str
    answers: Mapping[int, ResponseBody]
    errors: tuple[int, ...] = ()
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    needs_body: bool = False
    body_limit: int = BODY_LIMIT
    headers: Mapping[str, str] = field(default_factory=dict)
    """The request headers that it reads, with their descriptions."""


STOPPED: Mapping[int, ResponseBody] = {200: response_models.RunModel, 202: response_models.RunModel}

OPERATIONS = (
    Operation("health", "GET", "/health", "Check that the watcher is running.", {200: response_models.HealthModel}),
    Operation("info", "GET", "/info", "Describe the watcher and its addresses.", {200: response_models.InfoModel}),
    Operation(
        "schema",
        "GET",
        "/schema",
        "Get the JSON Schemas of the status document and of the settings.",
        {200: response_models.SchemasModel},
    ),
    Operation("openapi", "GET", "/openapi.json", "Get this document.", {200: NamedSchema("OpenAPI")}),
    Operation("status", "GET", "/status", "Get the current status document.", {200: NamedSchema("Status")}),
    Operation("metrics", "GET", "/metrics", "Get metrics for Prometheus.", {200: TextBody("text/plain")}),
    Operation(
        "events",
        "GET",
        "/events",
        "Subscribe to server-sent events; x-events describes each kind. A client that sends no id first gets the "
        "status of every lane. A client that does not read is disconnected; it may connect again.",
        {200: TextBody("text/event-stream")},
        headers={"Last-Event-ID": "Continue after this event. If that is impossible, a `reset` event is sent first."},
    ),
    Operation(
        "runs",
        "GET",
        "/runs",
        "List the queued, current and ended runs, newest first.",
        {200: response_models.RunsModel},
        errors=(404,),
        query=request_models.RunsQuery,
    ),
    Operation(
        "run",
        "POST",
        "/runs",
        "Request a run. It is either accepted (202), and then always reaches a final state, or refused.",
        {202: response_models.RunModel},
        errors=(404, 409, 429),
        body=request_models.RunRequest,
    ),
    Operation(
        "report",
        "GET",
        "/runs/{id}",
        "Get a run; `current` is the one in progress.",
        {200: response_models.RunModel},
        errors=(404,),
    ),
    Operation(
        "results",
        "GET",
        "/runs/{id}/results",
        "Get the results of a run, also while it is in progress. With `after`, no result is sent twice.",
        {200: response_models.ResultsModel},
        errors=(404,),
        query=request_models.ResultsQuery,
    ),
    Operation(
        "cancel",
        "POST",
        "/runs/{id}/cancel",
        "Cancel a run: 202 while it is stopping, 200 if it has ended. Cancelling it twice changes nothing.",
        STOPPED,
        errors=(404,),
        body=request_models.NothingModel,
    ),
    Operation(
        "kill",
        "POST",
        "/runs/{id}/kill",
        "Kill a run at once, without giving it time to clean up. Otherwise the same as cancel.",
        STOPPED,
        errors=(404,),
        body=request_models.NothingModel,
    ),
    Operation(
        "pause",
        "POST",
        "/pause",
        "Start no more runs until resumed.",
        {200: response_models.PausedModel},
        errors=(409,),
        body=request_models.LaneRequest,
    ),
    Operation(
        "resume",
        "POST",
        "/resume",
        "Start runs again.",
        {200: response_models.PausedModel},
        errors=(409,),
        body=request_models.LaneRequest,
    ),
    Operation(
        "look",
        "POST",
        "/look",
        "Check the source for changes now. If its tree has not changed, nothing runs again.",
        {200: response_models.RestModel},
        errors=(409,),
        body=request_models.LookRequest,
    ),
    Operation(
        "rest",
        "GET",
        "/look",
        "Ask whether a lane has settled: it has a verdict on every change that it knows of.",
        {200: response_models.RestModel},
        errors=(409,),
        query=request_models.LookQuery,
    ),
    Operation(
        "policy",
        "POST",
        "/policy",
        "Set which tests a change runs from now on.",
        {200: response_models.PolicySetModel},
        errors=(409,),
        body=request_models.PolicyRequest,
        needs_body=True,
    ),
    Operation(
        "screen",
        "GET",
        "/screen",
        "Get the rows of the dashboard, as the watcher itself would draw them.",
        {200: response_models.ScreenModel},
        query=request_models.ScreenQuery,
    ),
    Operation(
        "output",
        "GET",
        "/output",
        "Get the complete output of the failures and of the runner, or of the chosen failure only.",
        {200: response_models.OutputModel},
        query=request_models.ScreenQuery,
    ),
    Operation(
        "why",
        "GET",
        "/why",
        "Explain why a test ran or did not run, or which tests depend on a file.",
        {200: response_models.ExplainedModel},
        errors=(404, 409),
        query=request_models.WhyQuery,
    ),
    Operation(
        "validate",
        "POST",
        "/config/validate",
        "Check the content of a config file.",
        {200: response_models.CheckedModel},
        errors=(429,),
        body=request_models.ConfigRequest,
        needs_body=True,
        body_limit=CONFIG_LIMIT,
    ),
)
