"""The JSON Schemas of the status document and of a line of `watch --json-lines`, for authors of editor plugins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from watchtest.core.model import Lane, Outcome, Policy, ProvisionalCode, RunState, Trigger, Verdict
from watchtest.core.text import EXCERPT_LIMIT, MESSAGE_LIMIT
from watchtest.views.lines import json_lines
from watchtest.views.mood import Colour
from watchtest.views.status import status_document

Schema = dict[str, Any]

BOOLEAN: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
POSITIVE: Schema = {"type": "integer", "minimum": 1}
SECONDS: Schema = {"type": "number", "minimum": 0}
STRING: Schema = {"type": "string"}
TEXT: Schema = {"type": "string", "maxLength": MESSAGE_LIMIT}
"""A string that is cut if it is too long."""
TIME: Schema = {"type": "string", "format": "date-time", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"}


def _enum(values: Iterable[str]) -> Schema:
    return {"enum": list(map(str, values))}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "required": list(properties), "properties": properties}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _described(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


PROVISIONAL = _object(code=_enum(ProvisionalCode), message=TEXT, hint=_or_null(TEXT))


def status_schema() -> Schema:
    """Return the schema, in JSON Schema draft 2020-12."""
    lane = _lane_fields()
    parts = {"lane": _object(**lane), "counts": _counts(), "failure": _failure(), "service": _service()}
    top: dict[str, Schema] = {
        "schema": {"const": status_document.SCHEMA},
        "schema_version": {"const": status_document.SCHEMA_VERSION},
        "seq": _described(POSITIVE, "Increases with every write, also across restarts of the watcher."),
        "updated_at": TIME,
        "writer": _object(
            pid=POSITIVE,
            host=STRING,
            version=STRING,
            started_at=TIME,
            pid_start=_described(_or_null(COUNT), "Start time of the process in clock ticks since boot, on Linux."),
            boot_id=_or_null(STRING),
            heartbeat_s=_described(SECONDS, "How often the file `heartbeat` beside this one is touched."),
        ),
        **lane,
        "lanes": _object(**{name: _or_null(_part("lane")) for name in ("save", "stage", "commit")}),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{status_document.SCHEMA}:{status_document.SCHEMA_VERSION}",
        "title": "status.json of watchtest",
        "description": "Replaced by rename at each write: watch the folder, not the file. The top level repeats the "
        "highest lane that is on. Unknown values are null.",
        **_object(**top),
        "$defs": parts,
    }


def _part(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _lane_fields() -> dict[str, Schema]:
    code = _object(
        source=_enum(["worktree", "index", "head"]),
        tree=_described(_or_null(STRING), "The git tree id of exactly what was tested."),
        head=_or_null(STRING),
        branch=_or_null(STRING),
        dirty=_or_null(BOOLEAN),
        trigger=_or_null(_enum(Trigger)),
    )
    pending = _object(changes=COUNT, since=_or_null(TIME))
    scope = _object(
        kind=_enum(["affected", "failed", "all"]),
        wave=_or_null(COUNT),
        selected=_or_null(COUNT),
        known=COUNT,
        because=TEXT,
    )
    progress = _object(done=COUNT, total=_or_null(COUNT), eta_s=_or_null(SECONDS))
    box = _object(
        engine=STRING,
        id=STRING,
        image=STRING,
        state=STRING,
        since=TIME,
        restarts=COUNT,
        services={"type": "array", "items": _part("service")},
    )
    return {
        "activity": _described(_enum(get_args(status_document.Activity)), "What the watcher is doing."),
        "verdict": _described(_enum(Verdict), "The last verdict; a cancelled run never changes it."),
        "colour": _described(
            _enum(Colour), "How to show the verdict: green only if all tests passed on the code as it is now."
        ),
        "doubt": _described(_or_null(TEXT), "Why the verdict may not hold for the code as it is now."),
        "verdict_at": _or_null(TIME),
        "provisional": _described(
            _or_null(PROVISIONAL), "Why the verdict is provisional: its box is not a clean environment of the code."
        ),
        "reason": _described(_or_null(TEXT), "The reason for the verdict, if it needs one."),
        "run_id": _described(_or_null(STRING), "The run that gave the verdict."),
        "code": _described(code, "The code that the verdict is about."),
        "pending": _described(pending, "Changes without a verdict yet, including those of the current run."),
        "scope": _or_null(scope),
        "progress": _described(_or_null(progress), "null unless tests are running."),
        "run_counts": _described(_or_null(_part("counts")), "Counts of the current run, or else of the last one."),
        "known_counts": _described(_part("counts"), "Counts of the latest outcome of every known test."),
        "failures": {"type": "array", "maxItems": status_document.FAILURES_LIMIT, "items": _part("failure")},
        "failures_total": COUNT,
        "truncated": _described(BOOLEAN, "Failures, messages or outputs were cut."),
        "box": _or_null(box),
        "problem": _or_null(_object(code=STRING, message=TEXT, hint=_or_null(TEXT))),
    }


def _service() -> Schema:
    return _object(
        name=STRING,
        state=_enum(["starting", "ready", "backoff", "failed", "stopped"]),
        since=TIME,
        restarts=_described(COUNT, "Since its definition or a file that it depends on last changed."),
        reason=_described(_or_null(TEXT), "Why it is in backoff, or failed."),
    )


def _counts() -> Schema:
    return _object(
        **dict.fromkeys(("passed", "failed", "error", "skipped", "xfailed"), COUNT),
        stale=_described(COUNT, "Tests that did not run on the tree of the verdict."),
    )


def _failure() -> Schema:
    return _object(
        id=_described(TEXT, "The test as its runner names it; a file if its collection failed."),
        kind=STRING,
        file=_described(_or_null(STRING), "Relative to the workspace, with forward slashes."),
        line=_described(_or_null(POSITIVE), "1-based; the deepest frame in the test's own file."),
        column=_or_null(POSITIVE),
        source_line=_or_null(TEXT),
        message=TEXT,
        crash=_described(_or_null(_object(file=STRING, line=POSITIVE)), "The deepest frame in the workspace."),
        confirmed=_described(BOOLEAN, "False until the run that has seen it ends: the verdict does not have it yet."),
        new=_described(BOOLEAN, "Whether it was not red at the previous verdict."),
        since=_described(_or_null(TIME), "When it turned red."),
        flaky=_or_null(BOOLEAN),
        output=_described({"type": "string", "maxLength": EXCERPT_LIMIT}, "The end of the test's output."),
    )


OPTIONAL_TEXT, OPTIONAL_TIME = _or_null(TEXT), _or_null(TIME)
PROBLEM = _object(code=TEXT, message=TEXT, hint=OPTIONAL_TEXT)
PATHS: Schema = {"type": "array", "maxItems": json_lines.PATHS_LIMIT, "items": TEXT}
RUN_STATE = _enum([*(state for state in RunState if state.is_final), json_lines.UNCHANGED])
OUTCOME_COUNTS = _object(**dict.fromkeys(map(str, Outcome), COUNT))


def _event(kind: str, description: str, /, **fields: Schema) -> Schema:
    lane: Schema = {"type": "null"} if kind in ("began", "leaving") else _enum(Lane)
    return _described(_object(event={"const": kind}, at=TIME, lane=lane, **fields), description)


# fmt: off
EVENTS = (
    _event("began", "The first line.",
           schema={"const": json_lines.SCHEMA}, schema_version={"const": json_lines.SCHEMA_VERSION},
           version=TEXT, lanes={"type": "array", "items": _enum(Lane)}),
    _event("changed", "The source of the lane changed, or may have changed.",
           paths=_described(PATHS, "The first changed paths."), count=COUNT, everything=BOOLEAN),
    _event("waiting", "The lane has work, but has to wait.", reason=TEXT),
    _event("hindered", "The source is not read for now; null: it is read again.", reason=OPTIONAL_TEXT),
    _event("asked", "A run was requested.", run=OPTIONAL_TEXT, refused=OPTIONAL_TEXT),
    _event("started", "A run started.", run=TEXT, trigger=_enum(Trigger)),
    _event("selected", "The selection; `tests` is null if all tests run.",
           run=TEXT, tests=_or_null(COUNT), because=TEXT),
    _event("collected", "The number of tests that the run will report on.", run=TEXT, total=POSITIVE),
    _event("result", "A test ended.", run=TEXT, id=TEXT, outcome=_enum(Outcome), duration_s=SECONDS,
           file=OPTIONAL_TEXT, line=_or_null(POSITIVE), message=OPTIONAL_TEXT),
    _event("confirming", "A second run in a fresh process decides whether failures count.",
           run=TEXT, failures=POSITIVE),
    _event("superseding", "The run is stopped in favour of a newer change.", run=TEXT, reason=TEXT),
    _event("cancelling", "The run is being cancelled by the user.", run=OPTIONAL_TEXT, kill=BOOLEAN),
    _event("ended", "A run ended.",
           run=TEXT,
           state=_described(RUN_STATE, f"{json_lines.UNCHANGED}: the last verdict is about this very tree."),
           reason=OPTIONAL_TEXT,
           tree=OPTIONAL_TEXT,
           duration_s=SECONDS,
           verdict=_described(_enum(Verdict), "The verdict of the lane after this run."),
           colour=_described(_enum(Colour), "How to show it: green only if it is about the code as it is now."),
           provisional=_described(_or_null(PROVISIONAL), "Why that verdict is provisional."),
           counts=_described(OUTCOME_COUNTS, "The latest outcome of every known test, counted."),
           successor=OPTIONAL_TEXT,
           problem=_or_null(PROBLEM),
           retry_at=OPTIONAL_TIME),
    _event("retrying", "The lane retries after a problem of the tool, not of the code."),
    _event("paused", "Changes are recorded, but not tested."),
    _event("resumed", "Changes are tested again."),
    _event("policy", "What a change runs from now on.", policy=_enum(Policy), configured=_enum(Policy)),
    _event("note", "A message for the user.", text=TEXT),
    _event("box", "The box changed its state.", engine=TEXT, id=TEXT, image=TEXT, state=TEXT, restarts=COUNT),
    _event("box_lost", "The box is gone.", problem=PROBLEM, retry_at=OPTIONAL_TIME),
    _event("environment", "The clean environment of the lane, which a build makes behind the runs.",
           state=_enum(["building", "ready", "failed", "dropped"]), problem=_or_null(PROBLEM)),
    _event("service", "A service changed its state.", name=TEXT, state=TEXT, restarts=COUNT, reason=OPTIONAL_TEXT),
    _event("leaving", "The last line."),
)
# fmt: on


def event_schema() -> Schema:
    """Return the schema: every line is one of these kinds, told apart by `event`. Readers ignore unknown kinds."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{json_lines.SCHEMA}:{json_lines.SCHEMA_VERSION}",
        "title": "a line of `watchtest watch --json-lines`",
        "oneOf": list(EVENTS),
    }
