"""The JSON Schema of the status document, for the authors of editor plugins. Describes; checks nothing."""

from __future__ import annotations

from typing import Any

from watchtest.core.model import Trigger, Verdict
from watchtest.views.status.status_document import FAILURES_LIMIT, MESSAGE_LIMIT, OUTPUT_LIMIT, SCHEMA, SCHEMA_VERSION

Schema = dict[str, Any]


def status_schema() -> Schema:
    """JSON Schema, draft 2020-12."""
    lane = _lane()
    top = {
        "schema": {"const": SCHEMA},
        "schema_version": {"const": SCHEMA_VERSION},
        "seq": _says(_whole(1), "grows with every write, also across starts of the watcher"),
        "updated_at": _time(),
        "writer": _object(
            pid=_whole(1),
            host=_string(),
            version=_string(),
            started_at=_time(),
            pid_start=_says(_or_null(_whole()), "start time of the process in clock ticks since boot, on Linux"),
            boot_id=_or_null(_string()),
            heartbeat_s=_says(_number(), "the file `heartbeat` beside this one is touched that often"),
        ),
        **lane,
        "lanes": _object(**{name: _or_null({"$ref": "#/$defs/lane"}) for name in ("save", "stage", "commit")}),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{SCHEMA}:{SCHEMA_VERSION}",
        "title": "status.json of watchtest",
        "description": "Replaced by rename at each write: watch the folder, not the file. The top level repeats the "
        "highest lane that is on. What is not known is null.",
        **_object(**top),
        "$defs": {"lane": _object(**lane), "counts": _counts(), "failure": _failure(), "service": _service()},
    }


def _lane() -> Schema:
    return {
        "activity": _says(
            {"enum": ["starting", "idle", "syncing", "running", "paused", "degraded", "stopped"]}, "what it does"
        ),
        "verdict": _says(
            {"enum": [verdict.value for verdict in Verdict]}, "what is known; a cancelled run never changes it"
        ),
        "verdict_at": _or_null(_time()),
        "reason": _says(_or_null(_string(MESSAGE_LIMIT)), "why the verdict is what it is, where that is not plain"),
        "run_id": _says(_or_null(_string()), "the run the verdict comes from"),
        "code": _says(
            _object(
                source={"enum": ["worktree", "index", "head"]},
                tree=_says(_or_null(_string()), "git tree id of exactly what was tested"),
                head=_or_null(_string()),
                branch=_or_null(_string()),
                dirty=_or_null({"type": "boolean"}),
                trigger=_or_null({"enum": [trigger.value for trigger in Trigger]}),
            ),
            "the code the verdict is of",
        ),
        "pending": _says(
            _object(changes=_whole(), since=_or_null(_time())),
            "changes that no judged run has contained yet, those of the current run included",
        ),
        "scope": _or_null(
            _object(
                kind={"enum": ["affected", "failed", "all"]},
                wave=_or_null(_whole()),
                selected=_or_null(_whole()),
                known=_whole(),
                because=_string(MESSAGE_LIMIT),
            )
        ),
        "progress": _says(
            _or_null(_object(done=_whole(), total=_or_null(_whole()), eta_s=_or_null(_number()))),
            "null unless tests are running",
        ),
        "run_counts": _says(_or_null({"$ref": "#/$defs/counts"}), "of the current run, else of the last one"),
        "known_counts": _says({"$ref": "#/$defs/counts"}, "of the last word on every known test"),
        "failures": {"type": "array", "maxItems": FAILURES_LIMIT, "items": {"$ref": "#/$defs/failure"}},
        "failures_total": _whole(),
        "truncated": _says({"type": "boolean"}, "failures, messages or outputs were cut"),
        "box": _or_null(
            _object(
                engine=_string(),
                id=_string(),
                image=_string(),
                state=_string(),
                since=_time(),
                restarts=_whole(),
                services={"type": "array", "items": {"$ref": "#/$defs/service"}},
            )
        ),
        "problem": _or_null(
            _object(code=_string(), message=_string(MESSAGE_LIMIT), hint=_or_null(_string(MESSAGE_LIMIT)))
        ),
    }


def _service() -> Schema:
    return _object(
        name=_string(),
        state={"enum": ["starting", "ready", "backoff", "failed", "stopped"]},
        since=_time(),
        restarts=_says(_whole(), "since its definition or a file it depends on last changed"),
        reason=_says(_or_null(_string(MESSAGE_LIMIT)), "why it is in backoff, or failed"),
    )


def _counts() -> Schema:
    return _object(
        **{word: _whole() for word in ("passed", "failed", "error", "skipped", "xfailed")},
        stale=_says(_whole(), "not run on the tree of the verdict"),
    )


def _failure() -> Schema:
    return _object(
        id=_says(_string(MESSAGE_LIMIT), "the test, as its runner calls it; a file when its collection failed"),
        kind=_string(),
        file=_says(_or_null(_string()), "relative to the workspace, POSIX"),
        line=_says(_or_null(_whole(1)), "1-based; the deepest frame in the test's own file"),
        column=_or_null(_whole(1)),
        source_line=_or_null(_string(MESSAGE_LIMIT)),
        message=_string(MESSAGE_LIMIT),
        crash=_says(_or_null(_object(file=_string(), line=_whole(1))), "the deepest frame in the workspace"),
        new=_says({"type": "boolean"}, "not red at the verdict before"),
        since=_says(_or_null(_time()), "red since"),
        flaky=_or_null({"type": "boolean"}),
        output=_says(_string(OUTPUT_LIMIT), "the end of what the test printed"),
    )


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def _string(limit: int | None = None) -> Schema:
    return {"type": "string"} if limit is None else {"type": "string", "maxLength": limit}


def _whole(least: int = 0) -> Schema:
    return {"type": "integer", "minimum": least}


def _number() -> Schema:
    return {"type": "number", "minimum": 0}


def _time() -> Schema:
    return {
        "type": "string",
        "format": "date-time",
        "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$",
    }


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _says(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}
