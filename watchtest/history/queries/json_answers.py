"""The JSON documents that `watchtest history … --json` prints. Their format is stable."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum

from watchtest.core.model import Failure
from watchtest.core.text import timestamp
from watchtest.history.queries.run_queries import PastResult, PastRun, RunDetail
from watchtest.history.store.columns import OUTCOMES, AttemptKind, Proof

JsonObject = dict[str, object]
SUMMARY = ("id", "queued_at", "lane", "state", "tree", "head", "branch")
"""What identifies a run within another answer."""
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
            return to_json({name: getattr(value, name) for name in SUMMARY})
        case PastResult():
            return to_json(_result(value))
        case Failure():
            return to_json(_failure(value))
        case Proof() | AttemptKind():
            return value.name.lower()
        case Enum():
            return value.value
        case float():
            return round(value, 6)
        case tuple() | list():
            return [to_json(each) for each in value]
        case dict():
            return {name: _field(name, each) for name, each in value.items()}
        case _ if is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in fields(value) if field.name not in HIDDEN]
            names += [name for name in PROPERTIES if isinstance(getattr(type(value), name, None), property)]
            return {name: _field(name, getattr(value, name)) for name in names}
        case _:
            return value


def _field(name: str, value: object) -> object:
    if name == "codes" and isinstance(value, tuple):
        return [OUTCOMES[code].value for code in value]
    if (name == "at" or name.endswith("_at")) and isinstance(value, float):
        return timestamp(value)
    return to_json(value)


def run_json(run: PastRun) -> JsonObject:
    """Return everything about a run, for `to_json`."""
    return {
        "id": run.id,
        "workspace": run.workspace,
        "lane": run.lane,
        "trigger": run.trigger,
        "scope": {"kind": "all" if run.selected is None else "only", "selected": run.selected, "because": run.because},
        "forced": run.is_forced,
        "state": run.state,
        "reason": run.reason,
        "provisional": run.provisional,
        "queued_at": run.queued_at,
        "ended_at": run.ended_at,
        "duration_s": run.duration_s,
        "timings": run.timings,
        "code": {"tree": run.tree, "head": run.head, "branch": run.branch, "dirty": run.is_dirty},
        "environment": run.environment,
        "counts": {outcome.value: count for outcome, count in run.counts.items()},
        "imported_from": run.imported_from,
    }


def detail_json(detail: RunDetail) -> JsonObject:
    """Return everything about a run and its results, for `to_json`."""
    run = run_json(detail.run)
    return run | {"states": detail.transitions, "results": detail.results, "output": detail.raw_output}


def _result(past: PastResult) -> JsonObject:
    result = past.result
    return {
        "test": result.test,
        "attempt": past.attempt,
        "kind": past.kind,
        "outcome": result.outcome,
        "duration_s": result.duration_s,
        "failure": None if result.failure is None else {**_failure(result.failure), "signature": past.signature},
    }


def _failure(failure: Failure) -> JsonObject:
    return {
        "kind": failure.kind,
        "message": failure.message,
        "file": failure.where.file if failure.where is not None else None,
        "line": failure.where.line if failure.where is not None else None,
        "column": failure.column,
        "source_line": failure.source_line,
        "crash": failure.crash,
        "function": failure.function or None,
        "text": failure.text,
        "output": failure.output,
    }
