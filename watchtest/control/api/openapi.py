"""The OpenAPI document of the API, generated from its operations and their models. Imports no server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema

from watchtest.control.api.operations import OPERATIONS, NamedSchema, Operation, ResponseBody, TextBody
from watchtest.control.api.request_models import RUN_ID, component_name
from watchtest.control.api.response_models import EVENTS, RefusedModel
from watchtest.views.schemas import status_schema

Document = dict[str, Any]
REFERENCE = "#/components/schemas/{model}"
COMMON_ERRORS = (400, 401, 403, 500, 503)
BODY_ERRORS = (408, 413)
ERRORS = {
    400: "The request is invalid.",
    401: "The token is missing or wrong (TCP only).",
    403: "The Host or Origin header is not allowed.",
    404: "Not found.",
    408: "The body did not arrive in time.",
    409: "The lane is off.",
    413: "The body is too large.",
    429: "Too many requests are waiting.",
    500: "A bug in watchtest; see its log for details.",
    503: "The watcher is busy or stopping.",
}


class _ComponentSchema(GenerateJsonSchema):
    def normalize_name(self, name: str) -> str:
        return component_name(super().normalize_name(name))


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
            "summary": "Control a running watcher.",
            "description": "The watcher serves this API on a unix socket that only its user can open. If api.listen is "
            "set, it also listens on a port of the loopback interface and requires a token. `watchtest api url` and "
            "`watchtest api token` print the URL and the token.",
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**_models(), **_status(), "OpenAPI": {"type": "object"}},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation) -> Document:
    statuses = sorted({*COMMON_ERRORS, *operation.errors, *(BODY_ERRORS if operation.body else ())})
    described: Document = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation), *_query_parameters(operation), *_headers(operation)],
        "responses": {
            **{str(status): _answer(operation.answer) for status in operation.statuses},
            **{str(status): _json(ERRORS[status], _reference(RefusedModel)) for status in statuses},
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


def _answer(answer: ResponseBody) -> Document:
    match answer:
        case TextBody(media_type=media_type):
            return {"description": "Text.", "content": {media_type: {"schema": {"type": "string"}}}}
        case NamedSchema(name=name):
            return _json("A document.", {"$ref": REFERENCE.format(model=name)})
        case model:
            first_line = (model.__doc__ or "").strip().partition("\n")[0]
            return _json(first_line or "The request succeeded.", _reference(model))


def _json(description: str, schema: Document) -> Document:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _path_parameters(operation: Operation) -> Iterator[Document]:
    for name in re.findall(r"\{(\w+)\}", operation.path):
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": "The id of a run. `current` is the run in progress; `last`, `last-failed` and `last-green` "
            "are the latest such runs of the history.",
            "schema": {"type": "string", "pattern": f"^{RUN_ID.pattern}$"},
        }


def _query_parameters(operation: Operation) -> Iterator[Document]:
    if operation.query is None:
        return
    schema = operation.query.model_json_schema()
    for name, described in schema["properties"].items():
        own = {key: value for key, value in described.items() if key not in ("title", "description")}
        if "anyOf" in own:  # an optional parameter is omitted, never null
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
        schema = {"type": "string"}
        yield {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


def _reference(model: type[BaseModel]) -> Document:
    return {"$ref": REFERENCE.format(model=component_name(model.__name__))}


def _models() -> Document:
    queries = {operation.query for operation in OPERATIONS if operation.query}
    requests = queries | {operation.body for operation in OPERATIONS if operation.body}
    answers = {operation.answer for operation in OPERATIONS if isinstance(operation.answer, type)}
    answers |= {RefusedModel, *EVENTS.values()}
    both: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        *((model, "validation") for model in sorted(requests, key=lambda model: model.__name__)),
        *((model, "serialization") for model in sorted(answers, key=lambda model: model.__name__)),
    ]
    defined: Document = models_json_schema(both, ref_template=REFERENCE, schema_generator=_ComponentSchema)[1]["$defs"]
    inlined = {query.__name__ for query in queries}
    return {name: schema for name, schema in defined.items() if name not in inlined}


def _status() -> Document:
    """Return the status schema and its parts as components: references in an OpenAPI document start at its root."""
    schema = status_schema()
    parts = {f"Status-{name}": part for name, part in schema["$defs"].items()}
    whole = {key: value for key, value in schema.items() if key not in ("$defs", "$schema", "$id")}
    return {name: _moved(part) for name, part in {"Status": whole, **parts}.items()}


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
