"""The JSON documents that `watchtest history … --json` prints. Their format is stable."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum

from watchtest.core.model import Failure, Location
from watchtest.history.queries.run_queries import PastResult, PastRun, RunDetail
from watchtest.history.store.columns import OUTCOMES, Proof

JsonObject = dict[str, object]
TIMINGS = ("wait_s", "sync_s", "select_s", "start_s", "run_s")


def run_json(run: PastRun) -> JsonObject:
    return {
        "id": run.id,
        "workspace": run.workspace,
        "lane": run.lane.value,
        "trigger": run.trigger.value,
        "scope": {"kind": "all" if run.selected is None else "only", "selected": run.selected, "because": run.because},
        "forced": run.is_forced,
        "state": run.state.value,
        "reason": run.reason,
        "queued_at": _time(run.queued_at),
        "ended_at": None if run.ended_at is None else _time(run.ended_at),
        "duration_s": None if run.duration_s is None else round(run.duration_s, 6),
        "timings": {name: _rounded(getattr(run.timings, name)) for name in TIMINGS},
        "code": {"tree": run.tree, "head": run.head, "branch": run.branch, "dirty": run.is_dirty},
        "environment": run.environment,
        "counts": {outcome.value: count for outcome, count in run.counts.items()},
        "imported_from": run.imported_from,
    }


def detail_json(detail: RunDetail) -> JsonObject:
    return {
        **run_json(detail.run),
        "states": [
            {"state": each.state.value, "at": _time(each.at), "reason": each.reason} for each in detail.transitions
        ],
        "results": [_result(each) for each in detail.results],
        "output": detail.raw_output,
    }


def _result(past: PastResult) -> JsonObject:
    result = past.result
    return {
        "test": result.test,
        "attempt": past.attempt,
        "kind": past.kind.name.lower(),
        "outcome": result.outcome.value,
        "duration_s": result.duration_s,
        "failure": None if result.failure is None else {**_failure(result.failure), "signature": past.signature},
    }


def _failure(failure: Failure) -> JsonObject:
    return {
        "kind": failure.kind,
        "message": failure.message,
        **_location(failure.where),
        "column": failure.column,
        "source_line": failure.source_line,
        "crash": None if failure.crash is None else _location(failure.crash),
        "function": failure.function or None,
        "text": failure.text,
        "output": failure.output,
    }


def _location(location: Location | None) -> JsonObject:
    return {"file": None, "line": None} if location is None else {"file": location.file, "line": location.line}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- answers that become JSON by the names of their fields -----------------------------------------

PROPERTIES = ("tests", "failures", "runs", "flips", "growth")
"""Properties that are included like fields."""
HIDDEN = ("numbers",)
"""Fields that have a meaning only within the database."""


def to_json(value: object) -> object:
    """Return an answer as JSON: dataclasses by their fields, runs as summaries, times as text, outcomes by name.

    The names of the fields are therefore part of the format.
    """
    match value:
        case PastRun():
            return run_summary(value)
        case Failure():
            return _failure(value)
        case Proof():
            return value.name.lower()
        case Enum():
            return value.value
        case float():
            return round(value, 6)
        case tuple() | list():
            return [to_json(each) for each in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in fields(value) if field.name not in HIDDEN]
            document: JsonObject = {name: _field(name, getattr(value, name)) for name in names}
            for name in PROPERTIES:
                if isinstance(getattr(type(value), name, None), property):
                    document[name] = to_json(getattr(value, name))
            return document
        case _:
            return value


def _field(name: str, value: object) -> object:
    if name == "codes" and isinstance(value, tuple):
        return [OUTCOMES[code].value for code in value]
    if (name == "at" or name.endswith("_at")) and isinstance(value, float):
        return _time(value)
    return to_json(value)


def run_summary(run: PastRun) -> JsonObject:
    """Return what is needed to identify a run."""
    return {
        "id": run.id,
        "queued_at": _time(run.queued_at),
        "lane": run.lane.value,
        "state": run.state.value,
        "tree": run.tree,
        "head": run.head,
        "branch": run.branch,
    }
