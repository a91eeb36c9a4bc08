"""The JSON Schema of the status document, for authors of editor plugins."""

from __future__ import annotations

from typing import Any, get_args

from watchtest.core.model import Trigger, Verdict
from watchtest.core.text import EXCERPT_LIMIT, MESSAGE_LIMIT
from watchtest.views.status.status_document import FAILURES_LIMIT, SCHEMA, SCHEMA_VERSION, Activity

Schema = dict[str, Any]


def status_schema() -> Schema:
    """Return the schema, in JSON Schema draft 2020-12."""
    lane = _lane()
    top = {
        "schema": {"const": SCHEMA},
        "schema_version": {"const": SCHEMA_VERSION},
        "seq": _described(integer_schema(1), "Increases with every write, also across restarts of the watcher."),
        "updated_at": time_schema(),
        "writer": object_schema(
            pid=integer_schema(1),
            host=string_schema(),
            version=string_schema(),
            started_at=time_schema(),
            pid_start=_described(
                or_null(integer_schema()), "Start time of the process in clock ticks since boot, on Linux."
            ),
            boot_id=or_null(string_schema()),
            heartbeat_s=_described(number_schema(), "How often the file `heartbeat` beside this one is touched."),
        ),
        **lane,
        "lanes": object_schema(**{name: or_null({"$ref": "#/$defs/lane"}) for name in ("save", "stage", "commit")}),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{SCHEMA}:{SCHEMA_VERSION}",
        "title": "status.json of watchtest",
        "description": "Replaced by rename at each write: watch the folder, not the file. The top level repeats the "
        "highest lane that is on. Unknown values are null.",
        **object_schema(**top),
        "$defs": {"lane": object_schema(**lane), "counts": _counts(), "failure": _failure(), "service": _service()},
    }


def _lane() -> Schema:
    return {
        "activity": _described({"enum": list(get_args(Activity))}, "What the watcher is doing."),
        "verdict": _described(
            {"enum": [verdict.value for verdict in Verdict]}, "The last verdict; a cancelled run never changes it."
        ),
        "verdict_at": or_null(time_schema()),
        "reason": _described(or_null(string_schema(MESSAGE_LIMIT)), "The reason for the verdict, if it needs one."),
        "run_id": _described(or_null(string_schema()), "The run that gave the verdict."),
        "code": _described(
            object_schema(
                source={"enum": ["worktree", "index", "head"]},
                tree=_described(or_null(string_schema()), "The git tree id of exactly what was tested."),
                head=or_null(string_schema()),
                branch=or_null(string_schema()),
                dirty=or_null({"type": "boolean"}),
                trigger=or_null({"enum": [trigger.value for trigger in Trigger]}),
            ),
            "The code that the verdict is about.",
        ),
        "pending": _described(
            object_schema(changes=integer_schema(), since=or_null(time_schema())),
            "Changes without a verdict yet, including those of the current run.",
        ),
        "scope": or_null(
            object_schema(
                kind={"enum": ["affected", "failed", "all"]},
                wave=or_null(integer_schema()),
                selected=or_null(integer_schema()),
                known=integer_schema(),
                because=string_schema(MESSAGE_LIMIT),
            )
        ),
        "progress": _described(
            or_null(
                object_schema(done=integer_schema(), total=or_null(integer_schema()), eta_s=or_null(number_schema()))
            ),
            "null unless tests are running.",
        ),
        "run_counts": _described(
            or_null({"$ref": "#/$defs/counts"}), "Counts of the current run, or else of the last one."
        ),
        "known_counts": _described({"$ref": "#/$defs/counts"}, "Counts of the latest outcome of every known test."),
        "failures": {"type": "array", "maxItems": FAILURES_LIMIT, "items": {"$ref": "#/$defs/failure"}},
        "failures_total": integer_schema(),
        "truncated": _described({"type": "boolean"}, "Failures, messages or outputs were cut."),
        "box": or_null(
            object_schema(
                engine=string_schema(),
                id=string_schema(),
                image=string_schema(),
                state=string_schema(),
                since=time_schema(),
                restarts=integer_schema(),
                services={"type": "array", "items": {"$ref": "#/$defs/service"}},
            )
        ),
        "problem": or_null(
            object_schema(
                code=string_schema(), message=string_schema(MESSAGE_LIMIT), hint=or_null(string_schema(MESSAGE_LIMIT))
            )
        ),
    }


def _service() -> Schema:
    return object_schema(
        name=string_schema(),
        state={"enum": ["starting", "ready", "backoff", "failed", "stopped"]},
        since=time_schema(),
        restarts=_described(integer_schema(), "Since its definition or a file that it depends on last changed."),
        reason=_described(or_null(string_schema(MESSAGE_LIMIT)), "Why it is in backoff, or failed."),
    )


def _counts() -> Schema:
    return object_schema(
        **{word: integer_schema() for word in ("passed", "failed", "error", "skipped", "xfailed")},
        stale=_described(integer_schema(), "Tests that did not run on the tree of the verdict."),
    )


def _failure() -> Schema:
    return object_schema(
        id=_described(
            string_schema(MESSAGE_LIMIT), "The test as its runner names it; a file if its collection failed."
        ),
        kind=string_schema(),
        file=_described(or_null(string_schema()), "Relative to the workspace, with forward slashes."),
        line=_described(or_null(integer_schema(1)), "1-based; the deepest frame in the test's own file."),
        column=or_null(integer_schema(1)),
        source_line=or_null(string_schema(MESSAGE_LIMIT)),
        message=string_schema(MESSAGE_LIMIT),
        crash=_described(
            or_null(object_schema(file=string_schema(), line=integer_schema(1))), "The deepest frame in the workspace."
        ),
        new=_described({"type": "boolean"}, "Whether it was not red at the previous verdict."),
        since=_described(or_null(time_schema()), "When it turned red."),
        flaky=or_null({"type": "boolean"}),
        output=_described(string_schema(EXCERPT_LIMIT), "The end of the test's output."),
    )


def object_schema(**properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "required": list(properties), "properties": properties}


def string_schema(limit: int | None = None) -> Schema:
    return {"type": "string"} if limit is None else {"type": "string", "maxLength": limit}


def integer_schema(least: int = 0) -> Schema:
    return {"type": "integer", "minimum": least}


def number_schema() -> Schema:
    return {"type": "number", "minimum": 0}


def time_schema() -> Schema:
    return {"type": "string", "format": "date-time", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _described(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}
