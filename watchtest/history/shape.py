"""The answers of `queries` as JSON says them: the shape that `watchtest history … --json` promises."""

from __future__ import annotations

from datetime import UTC, datetime

from watchtest.core.model import Failure, Place
from watchtest.history.queries import PastResult, PastRun, RunDetail

Shape = dict[str, object]


def run_shape(run: PastRun) -> Shape:
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
        "duration_s": None if run.ended_at is None else round(run.ended_at - run.queued_at, 6),
        "code": {"tree": run.tree, "head": run.head, "branch": run.branch, "dirty": run.is_dirty},
        "environment": run.environment,
        "counts": {outcome.value: count for outcome, count in run.counts.items()},
    }


def detail_shape(detail: RunDetail) -> Shape:
    return {
        **run_shape(detail.run),
        "states": [
            {"state": each.state.value, "at": _time(each.at), "reason": each.reason} for each in detail.transitions
        ],
        "results": [_result(each) for each in detail.results],
        "output": detail.raw_output,
    }


def _result(past: PastResult) -> Shape:
    result = past.result
    return {
        "test": result.test,
        "attempt": past.attempt,
        "outcome": result.outcome.value,
        "duration_s": result.duration_s,
        "failure": None if result.failure is None else _failure(result.failure),
    }


def _failure(failure: Failure) -> Shape:
    return {
        "kind": failure.kind,
        "message": failure.message,
        **_place(failure.where),
        "column": failure.column,
        "source_line": failure.source_line,
        "crash": None if failure.crash is None else _place(failure.crash),
        "text": failure.text,
        "output": failure.output,
    }


def _place(place: Place | None) -> Shape:
    return {"file": None, "line": None} if place is None else {"file": place.file, "line": place.line}


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
