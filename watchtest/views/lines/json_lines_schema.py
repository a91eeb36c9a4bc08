"""The JSON Schema of a line of `watch --json-lines`."""

from __future__ import annotations

from watchtest.core.model import Lane, Outcome, Policy, RunState, Trigger, Verdict
from watchtest.core.text import MESSAGE_LIMIT
from watchtest.views.lines.json_lines import PATHS_LIMIT, SCHEMA, SCHEMA_VERSION, UNCHANGED
from watchtest.views.status.status_schema import (
    Schema,
    integer_schema,
    number_schema,
    object_schema,
    or_null,
    string_schema,
    time_schema,
)


def event_schema() -> Schema:
    """Return the schema: every line is one of these kinds, told apart by `event`. Readers ignore unknown kinds."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{SCHEMA}:{SCHEMA_VERSION}",
        "title": "a line of `watchtest watch --json-lines`",
        "oneOf": [
            _event("began", "The first line.", **_began()),
            _event("changed", "The source of the lane changed, or may have changed.", **_changed()),
            _event("waiting", "The lane has work, but has to wait.", reason=_text()),
            _event("hindered", "The source is not read for now; null: it is read again.", reason=or_null(_text())),
            _event("asked", "A run was requested.", run=or_null(_text()), refused=or_null(_text())),
            _event("started", "A run started.", run=_text(), trigger={"enum": [trigger.value for trigger in Trigger]}),
            _event(
                "selected",
                "The selection; `tests` is null if all tests run.",
                run=_text(),
                tests=or_null(integer_schema()),
                because=_text(),
            ),
            _event(
                "collected", "The number of tests that the run will report on.", run=_text(), total=integer_schema(1)
            ),
            _event("result", "A test ended.", run=_text(), **_result()),
            _event("superseding", "The run is stopped in favour of a newer change.", run=_text(), reason=_text()),
            _event(
                "cancelling", "The run is being cancelled by the user.", run=or_null(_text()), kill={"type": "boolean"}
            ),
            _event("ended", "A run ended.", **_ended()),
            _event("retrying", "The lane retries after a problem of the tool, not of the code."),
            _event("paused", "Changes are recorded, but not tested."),
            _event("resumed", "Changes are tested again."),
            _event("policy", "What a change runs from now on.", policy=_policy(), configured=_policy()),
            _event("note", "A message for the user.", text=_text()),
            _event("box", "The box changed its state.", **_box()),
            _event("box_lost", "The box is gone.", problem=_problem(), retry_at=or_null(time_schema())),
            _event("service", "A service changed its state.", **_service()),
            _event("leaving", "The last line."),
        ],
    }


def _event(kind: str, description: str, /, **fields: Schema) -> Schema:
    has_lane = kind not in ("began", "leaving")
    lane: Schema = {"enum": [lane.value for lane in Lane]} if has_lane else {"type": "null"}
    return object_schema(event={"const": kind}, at=time_schema(), lane=lane, **fields) | {"description": description}


def _policy() -> Schema:
    return {"enum": [policy.value for policy in Policy]}


def _began() -> dict[str, Schema]:
    lanes = {"type": "array", "items": {"enum": [lane.value for lane in Lane]}}
    version = {"const": SCHEMA_VERSION}
    return {"schema": {"const": SCHEMA}, "schema_version": version, "version": _text(), "lanes": lanes}


def _changed() -> dict[str, Schema]:
    paths = {"type": "array", "maxItems": PATHS_LIMIT, "items": _text(), "description": "The first changed paths."}
    return {"paths": paths, "count": integer_schema(), "everything": {"type": "boolean"}}


def _result() -> dict[str, Schema]:
    return {
        "id": _text(),
        "outcome": {"enum": [outcome.value for outcome in Outcome]},
        "duration_s": number_schema(),
        "file": or_null(_text()),
        "line": or_null(integer_schema(1)),
        "message": or_null(_text()),
    }


def _ended() -> dict[str, Schema]:
    ends = [state.value for state in RunState if state.is_final]
    counts = object_schema(**{outcome.value: integer_schema() for outcome in Outcome})
    return {
        "run": _text(),
        "state": {"enum": [*ends, UNCHANGED], "description": f"{UNCHANGED}: the last verdict is about this very tree."},
        "reason": or_null(_text()),
        "tree": or_null(_text()),
        "duration_s": number_schema(),
        "verdict": {
            "enum": [verdict.value for verdict in Verdict],
            "description": "The verdict of the lane after this run.",
        },
        "counts": counts | {"description": "The latest outcome of every known test, counted."},
        "successor": or_null(_text()),
        "problem": or_null(_problem()),
        "retry_at": or_null(time_schema()),
    }


def _box() -> dict[str, Schema]:
    return {"engine": _text(), "id": _text(), "image": _text(), "state": _text(), "restarts": integer_schema()}


def _service() -> dict[str, Schema]:
    return {"name": _text(), "state": _text(), "restarts": integer_schema(), "reason": or_null(_text())}


def _problem() -> Schema:
    return object_schema(code=_text(), message=_text(), hint=or_null(_text()))


def _text() -> Schema:
    return string_schema(MESSAGE_LIMIT)
