"""Every route of the API, described once: the server serves these, and the OpenAPI document is generated from them.

To add a route, add an entry here and a handler of the same name in `routes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel

from watchtest.control.api import request_models, response_models

BODY_LIMIT = 64 * 1024
CONFIG_LIMIT = 256 * 1024


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
    """A route. `errors` lists only the statuses that not every request can have."""

    name: str
    method: str
    path: str
    answer: ResponseBody
    summary: str
    statuses: tuple[int, ...] = (200,)
    errors: tuple[int, ...] = ()
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    needs_body: bool = False
    body_limit: int = BODY_LIMIT
    headers: Mapping[str, str] = field(default_factory=dict)
    """The request headers that it reads, with their descriptions."""


# fmt: off
OPERATIONS = (
    Operation("health", "GET", "/health", response_models.HealthModel, "Check that the watcher is running."),
    Operation("info", "GET", "/info", response_models.InfoModel, "Describe the watcher and its addresses."),
    Operation("schema", "GET", "/schema", response_models.SchemasModel,
              "Get the JSON Schemas of the status document and of the settings."),
    Operation("openapi", "GET", "/openapi.json", NamedSchema("OpenAPI"), "Get this document."),
    Operation("status", "GET", "/status", NamedSchema("Status"), "Get the current status document."),
    Operation("metrics", "GET", "/metrics", TextBody("text/plain"), "Get metrics for Prometheus."),
    Operation("events", "GET", "/events", TextBody("text/event-stream"),
              "Subscribe to server-sent events; x-events describes each kind. A client that sends no id first gets the "
              "status of every lane. A client that does not read is disconnected; it may connect again.",
              headers={"Last-Event-ID": "Continue after this event. If that is impossible, `reset` is sent first."}),
    Operation("runs", "GET", "/runs", response_models.RunsModel,
              "List the queued, current and ended runs, newest first.", query=request_models.RunsQuery, errors=(404,)),
    Operation("run", "POST", "/runs", response_models.RunModel,
              "Request a run. It is either accepted (202), and then always reaches a final state, or refused.",
              body=request_models.RunRequest, statuses=(202,), errors=(404, 409, 429)),
    Operation("report", "GET", "/runs/{id}", response_models.RunModel,
              "Get a run; `current` is the one in progress.", errors=(404,)),
    Operation("results", "GET", "/runs/{id}/results", response_models.ResultsModel,
              "Get the results of a run, also while it is in progress. With `after`, no result is sent twice.",
              query=request_models.ResultsQuery, errors=(404,)),
    Operation("cancel", "POST", "/runs/{id}/cancel", response_models.RunModel,
              "Cancel a run: 202 while it is stopping, 200 if it has ended. Cancelling it twice changes nothing.",
              body=request_models.NothingModel, statuses=(200, 202), errors=(404,)),
    Operation("kill", "POST", "/runs/{id}/kill", response_models.RunModel,
              "Kill a run at once, without giving it time to clean up. Otherwise the same as cancel.",
              body=request_models.NothingModel, statuses=(200, 202), errors=(404,)),
    Operation("pause", "POST", "/pause", response_models.PausedModel, "Start no more runs until resumed.",
              body=request_models.LaneRequest, errors=(409,)),
    Operation("resume", "POST", "/resume", response_models.PausedModel, "Start runs again.",
              body=request_models.LaneRequest, errors=(409,)),
    Operation("look", "POST", "/look", response_models.RestModel,
              "Check the source for changes now. If its tree has not changed, nothing runs again.",
              body=request_models.LookRequest, errors=(409,)),
    Operation("rest", "GET", "/look", response_models.RestModel,
              "Ask whether a lane has settled: it has a verdict on every change that it knows of.",
              query=request_models.LookQuery, errors=(409,)),
    Operation("policy", "POST", "/policy", response_models.PolicySetModel, "Set which tests a change runs from now on.",
              body=request_models.PolicyRequest, needs_body=True, errors=(409,)),
    Operation("screen", "GET", "/screen", response_models.ScreenModel,
              "Get the rows of the dashboard, as the watcher itself would draw them.",
              query=request_models.ScreenQuery),
    Operation("output", "GET", "/output", response_models.OutputModel,
              "Get the complete output of the failures and of the runner, or of the chosen failure only.",
              query=request_models.ScreenQuery),
    Operation("why", "GET", "/why", response_models.ExplainedModel,
              "Explain why a test ran or did not run, or which tests depend on a file.",
              query=request_models.WhyQuery, errors=(404, 409)),
    Operation("validate", "POST", "/config/validate", response_models.CheckedModel,
              "Check the content of a config file.",
              body=request_models.ConfigRequest, needs_body=True, body_limit=CONFIG_LIMIT, errors=(429,)),
)
# fmt: on
