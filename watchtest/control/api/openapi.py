"""The OpenAPI document of the API, made from its operations and their models. Imports no server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from watchtest.control.api import models
from watchtest.control.api.event_models import EVENTS
from watchtest.control.api.operations import OPERATIONS, Answer, Named, Operation, Text
from watchtest.control.api.requests import RUN_ID
from watchtest.views.status.status_schema import status_schema

Document = dict[str, Any]
REFERENCE = "#/components/schemas/{model}"
ALWAYS = (400, 401, 403, 500, 503)
"""A parameter that nobody reads, no token or a foreign host (over TCP), a bug, too much to do or no time left."""
WITH_BODY = (408, 413)
WORDS = {
    400: "It is not understood.",
    401: "The token is missing or wrong (over TCP).",
    403: "The host or the origin is a foreign one.",
    404: "There is no such thing.",
    408: "The body has not come in time.",
    409: "That lane is off.",
    413: "The body is too large.",
    429: "Too much waits already.",
    500: "A bug of watchtest; its log has the details.",
    503: "The watcher is busy, or leaving.",
}


def document(version: str) -> Document:
    """Return the OpenAPI 3.1 document."""
    paths: dict[str, Document] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "watchtest",
            "version": version,
            "summary": "Speak with a running watcher.",
            "description": "On a unix socket that only its user can open, and, if api.listen says so, on a port of "
            "the loopback with a token. `watchtest api url` and `watchtest api token` tell both.",
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**_models(), **_status(status_schema()), "OpenAPI": {"type": "object"}},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation) -> Document:
    statuses = sorted({*ALWAYS, *operation.errors, *(WITH_BODY if operation.body else ())})
    described: Document = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation), *_query_parameters(operation), *_headers(operation)],
        "responses": {
            **{str(status): _answer(answer) for status, answer in operation.answers.items()},
            **{str(status): _error(status) for status in statuses},
        },
    }
    if operation.body is not None:
        described["requestBody"] = {
            "required": operation.needs_body,
            "content": {"application/json": {"schema": _reference(operation.body)}},
        }
    if operation.name == "events":
        described["x-events"] = {kind: _reference(model) for kind, model in EVENTS.items()}
    return described


def _answer(answer: Answer) -> Document:
    match answer:
        case Text(media_type=media_type):
            return {"description": "Text.", "content": {media_type: {"schema": {"type": "string"}}}}
        case Named(name=name):
            return _json("A document.", {"$ref": REFERENCE.format(model=name)})
        case model:
            return _json(_first_line(model), _reference(model))


def _error(status: int) -> Document:
    return _json(WORDS[status], _reference(models.Refused))


def _json(description: str, schema: Document) -> Document:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().partition("\n")[0] or "It is done."


def _path_parameters(operation: Operation) -> Iterator[Document]:
    for name in re.findall(r"\{(\w+)\}", operation.path):
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": "The id of a run; `current` is the one under way, `last`, `last-failed` and `last-green` "
            "are those of the history.",
            "schema": {"type": "string", "pattern": f"^{RUN_ID.pattern}$"},
        }


def _query_parameters(operation: Operation) -> Iterator[Document]:
    if operation.query is None:
        return
    schema = operation.query.model_json_schema()
    for name, described in schema["properties"].items():
        own = {key: value for key, value in described.items() if key not in ("title", "description")}
        if "anyOf" in own:  # what may be left out is not sent as null
            own = own["anyOf"][0]
        if "$ref" in own:
            own = {"$ref": REFERENCE.format(model=own["$ref"].rpartition("/")[2])}
        yield {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "description": described.get("description", ""),
            "schema": own,
        }


def _headers(operation: Operation) -> Iterator[Document]:
    for name, description in operation.headers.items():
        yield {"name": name, "in": "header", "required": False, "description": description, "schema": STRING}


STRING = {"type": "string"}


def _reference(model: type[BaseModel]) -> Document:
    return {"$ref": REFERENCE.format(model=model.__name__)}


def _models() -> Document:
    asked = {operation.body for operation in OPERATIONS if operation.body}
    asked |= {operation.query for operation in OPERATIONS if operation.query}
    told = {answer for operation in OPERATIONS for answer in operation.answers.values() if isinstance(answer, type)}
    told |= {models.Refused, *EVENTS.values()}
    both: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        *((model, "validation") for model in sorted(asked, key=lambda model: model.__name__)),
        *((model, "serialization") for model in sorted(told, key=lambda model: model.__name__)),
    ]
    defined: Document = models_json_schema(both, ref_template=REFERENCE)[1]["$defs"]
    queries = {operation.query.__name__ for operation in OPERATIONS if operation.query}
    return {name: schema for name, schema in defined.items() if name not in queries}


def _status(schema: Mapping[str, Any]) -> Document:
    """With its parts beside it: a reference in an OpenAPI document begins at the document's own top."""
    parts = {f"Status-{name}": part for name, part in schema["$defs"].items()}
    whole = {key: value for key, value in schema.items() if key not in ("$defs", "$schema", "$id")}
    moved: Document = _moved({"Status": whole, **parts})
    return moved


def _moved(value: Any) -> Any:
    match value:
        case {"$ref": str(reference), **rest}:
            return {**rest, "$ref": REFERENCE.format(model=f"Status-{reference.rpartition('/')[2]}")}
        case dict():
            return {key: _moved(each) for key, each in value.items()}
        case list():
            return [_moved(each) for each in value]
        case _:
            return value
