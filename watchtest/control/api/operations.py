"""Every route of the API, described once: the server serves these, and the OpenAPI document is made from them.

A new route is an entry here and a handler of the same name in `routes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel

from watchtest.control.api import models
from watchtest.control.api.requests import BODY_LIMIT, CONFIG_LIMIT


@dataclass(frozen=True, slots=True)
class Text:
    """An answer that is no JSON."""

    media_type: str


@dataclass(frozen=True, slots=True)
class Named:
    """A JSON document whose schema is kept elsewhere, under this name."""

    name: str


Answer = type[BaseModel] | Text | Named


@dataclass(frozen=True, slots=True)
class Operation:
    """`answers` and `errors` by status. What any request may be answered by is not repeated here."""

    name: str
    method: str
    path: str
    summary: str
    answers: Mapping[int, Answer]
    errors: tuple[int, ...] = ()
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    needs_body: bool = False
    body_limit: int = BODY_LIMIT
    headers: Mapping[str, str] = field(default_factory=dict)
    """What it reads of the headers, and what for."""


STOPPED: Mapping[int, Answer] = {200: models.Run, 202: models.Run}

OPERATIONS = (
    Operation("health", "GET", "/health", "Who answers.", {200: models.Health}),
    Operation("info", "GET", "/info", "The watcher, and where it can be reached.", {200: models.Info}),
    Operation("schema", "GET", "/schema", "JSON Schemas of the status and of the settings.", {200: models.Schemas}),
    Operation("openapi", "GET", "/openapi.json", "This document.", {200: Named("OpenAPI")}),
    Operation("status", "GET", "/status", "The status document, as of now.", {200: Named("Status")}),
    Operation("metrics", "GET", "/metrics", "For Prometheus.", {200: Text("text/plain")}),
    Operation(
        "events",
        "GET",
        "/events",
        "What happens, as server-sent events; x-events has the shape of each kind. Whoever comes without an id is "
        "told how things stand first. A client that does not read is cut off, and may come back.",
        {200: Text("text/event-stream")},
        headers={"Last-Event-ID": "Go on behind this event; where that cannot be done, `reset` says so."},
    ),
    Operation(
        "runs",
        "GET",
        "/runs",
        "Runs that wait, are under way or have ended, newest first.",
        {200: models.Runs},
        errors=(404,),
        query=models.RunsQuery,
    ),
    Operation(
        "run",
        "POST",
        "/runs",
        "Ask for a run. It is accepted (202) and will reach an end, or refused.",
        {202: models.Run},
        errors=(404, 409, 429),
        body=models.RunRequest,
    ),
    Operation(
        "report",
        "GET",
        "/runs/{id}",
        "A run, on its way or past; `current` is the one under way.",
        {200: models.Run},
        errors=(404,),
    ),
    Operation(
        "results",
        "GET",
        "/runs/{id}/results",
        "The results of a run, those that are there while it runs; none of them twice.",
        {200: models.Results},
        errors=(404,),
        query=models.ResultsQuery,
    ),
    Operation(
        "cancel",
        "POST",
        "/runs/{id}/cancel",
        "End a run: 202 while it is being ended, 200 once it has. Asking twice changes nothing.",
        STOPPED,
        errors=(404,),
        body=models.Nothing,
    ),
    Operation(
        "kill",
        "POST",
        "/runs/{id}/kill",
        "The same, at once, without a chance to clean up.",
        STOPPED,
        errors=(404,),
        body=models.Nothing,
    ),
    Operation(
        "pause",
        "POST",
        "/pause",
        "Begin no more runs.",
        {200: models.Paused},
        errors=(409,),
        body=models.LaneRequest,
    ),
    Operation(
        "resume",
        "POST",
        "/resume",
        "Go on.",
        {200: models.Paused},
        errors=(409,),
        body=models.LaneRequest,
    ),
    Operation(
        "look",
        "POST",
        "/look",
        "Look at the source now, as if all of it had changed; a tree that has not is not run again.",
        {200: models.Rest},
        errors=(409,),
        body=models.LookRequest,
    ),
    Operation(
        "rest",
        "GET",
        "/look",
        "Whether a lane rests: everything that it was told of is judged.",
        {200: models.Rest},
        errors=(409,),
        query=models.LookQuery,
    ),
    Operation(
        "policy",
        "POST",
        "/policy",
        "How much a change runs, until told otherwise.",
        {200: models.PolicySet},
        errors=(409,),
        body=models.PolicyRequest,
        needs_body=True,
    ),
    Operation(
        "screen",
        "GET",
        "/screen",
        "The dashboard, row by row, as the watcher itself would draw it.",
        {200: models.Screen},
        query=models.ScreenQuery,
    ),
    Operation(
        "output",
        "GET",
        "/output",
        "All that the failures and the runner have said; of one failure, if one is chosen.",
        {200: models.Output},
        query=models.ScreenQuery,
    ),
    Operation(
        "why",
        "GET",
        "/why",
        "Why a test ran or did not, or who depends on a file.",
        {200: models.Explained},
        errors=(404, 409),
        query=models.WhyQuery,
    ),
    Operation(
        "validate",
        "POST",
        "/config/validate",
        "What is wrong with the text of a config file.",
        {200: models.Checked},
        errors=(429,),
        body=models.ConfigRequest,
        needs_body=True,
        body_limit=CONFIG_LIMIT,
    ),
)
