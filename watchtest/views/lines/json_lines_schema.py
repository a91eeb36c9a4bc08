"""The JSON Schema of a line of `watch --json-lines`: the contract with machines, as plain data."""

from __future__ import annotations

from typing import Any

from watchtest.core.model import Lane, Outcome, Policy, RunState, Trigger, Verdict
from watchtest.views.lines.json_lines import PATHS_LIMIT, SCHEMA, SCHEMA_VERSION, UNCHANGED
from watchtest.views.status.status_document import MESSAGE_LIMIT

Schema = dict[str, Any]


def event_schema() -> Schema:
    """Every line is one of these, told apart by `event`. A reader passes over kinds that it does not know."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{SCHEMA}:{SCHEMA_VERSION}",
        "title": "a line of `watchtest watch --json-lines`",
        "oneOf": [
            _event("began", "the first line of all", **_began()),
            _event("changed", "the source of the lane changed, or may have", **_changed()),
            _event("waiting", "the lane would run, but has to wait", reason=_text()),
            _event("hindered", "the source is not looked at for now; null: it is again", reason=_or_null(_text())),
            _event("asked", "somebody asked for a run", run=_or_null(_text()), refused=_or_null(_text())),
            _event("started", "a run has begun", run=_text(), trigger={"enum": [trigger.value for trigger in Trigger]}),
            _event("selected", "tests: null is all of them", run=_text(), tests=_or_null(_whole()), because=_text()),
            _event("collected", "how many tests the run promises to report on", run=_text(), total=_whole(1)),
            _event("result", "a test has ended", run=_text(), **_result()),
            _event("superseding", "the run is given up for a newer change", run=_text(), reason=_text()),
            _event("cancelling", "the run is being ended by command", run=_or_null(_text()), kill={"type": "boolean"}),
            _event("ended", "a run has come to its end", **_ended()),
            _event("retrying", "after a problem of the tool, not of the code"),
            _event("paused", "changes are noted and wait"),
            _event("resumed", "changes run again"),
            _event("policy", "what a change runs from now on", policy=_policy(), configured=_policy()),
            _event("note", "a line worth showing", text=_text()),
            _event("box", "the box is in another state", **_box()),
            _event("box_lost", "the box is gone", problem=_problem(), retry_at=_or_null(_time())),
            _event("service", "a service of the box is in another state", **_service()),
            _event("leaving", "the last line of all"),
        ],
    }


def _event(kind: str, description: str, /, **fields: Schema) -> Schema:
    has_lane = kind not in ("began", "leaving")
    lane: Schema = {"enum": [lane.value for lane in Lane]} if has_lane else {"type": "null"}
    return _object(event={"const": kind}, at=_time(), lane=lane, **fields) | {"description": description}


def _policy() -> Schema:
    return {"enum": [policy.value for policy in Policy]}


def _began() -> dict[str, Schema]:
    lanes = {"type": "array", "items": {"enum": [lane.value for lane in Lane]}}
    version = {"const": SCHEMA_VERSION}
    return {"schema": {"const": SCHEMA}, "schema_version": version, "version": _text(), "lanes": lanes}


def _changed() -> dict[str, Schema]:
    paths = {"type": "array", "maxItems": PATHS_LIMIT, "items": _text(), "description": "the first of them"}
    return {"paths": paths, "count": _whole(), "everything": {"type": "boolean"}}


def _result() -> dict[str, Schema]:
    return {
        "id": _text(),
        "outcome": {"enum": [outcome.value for outcome in Outcome]},
        "duration_s": _number(),
        "file": _or_null(_text()),
        "line": _or_null(_whole(1)),
        "message": _or_null(_text()),
    }


def _ended() -> dict[str, Schema]:
    ends = [state.value for state in RunState if state not in (RunState.QUEUED, RunState.SYNCING, RunState.RUNNING)]
    counts = _object(**{outcome.value: _whole() for outcome in Outcome})
    return {
        "run": _text(),
        "state": {"enum": [*ends, UNCHANGED], "description": f"{UNCHANGED}: the last verdict is of this very tree"},
        "reason": _or_null(_text()),
        "tree": _or_null(_text()),
        "duration_s": _number(),
        "verdict": {"enum": [verdict.value for verdict in Verdict], "description": "what is known of the lane now"},
        "counts": counts | {"description": "of the last word on every known test"},
        "successor": _or_null(_text()),
        "problem": _or_null(_problem()),
        "retry_at": _or_null(_time()),
    }


def _box() -> dict[str, Schema]:
    return {"engine": _text(), "id": _text(), "image": _text(), "state": _text(), "restarts": _whole()}


def _service() -> dict[str, Schema]:
    return {"name": _text(), "state": _text(), "restarts": _whole(), "reason": _or_null(_text())}


def _problem() -> Schema:
    return _object(code=_text(), message=_text(), hint=_or_null(_text()))


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "required": list(properties), "properties": properties}


def _text() -> Schema:
    return {"type": "string", "maxLength": MESSAGE_LIMIT}


def _whole(least: int = 0) -> Schema:
    return {"type": "integer", "minimum": least}


def _number() -> Schema:
    return {"type": "number", "minimum": 0}


def _time() -> Schema:
    return {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}
