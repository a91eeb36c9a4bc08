"""Events as JSON lines for other programs: one object per line, with the fields of `schemas`.

Text that came out of the box is bounded in length and stripped of control sequences.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, TextIO

from watchtest import __version__
from watchtest.core import transitions
from watchtest.core.events import EVERYTHING, Event, Judged, ToolFailure
from watchtest.core.model import Only, Outcome, Result, Run, RunState, StopReason
from watchtest.core.state import Broken, BuildFailed, Building, LaneState, State
from watchtest.core.text import MESSAGE_LIMIT, clean, cut, one_line, optional_timestamp, timestamp
from watchtest.views.lines.plain_lines import write_line
from watchtest.views.mood import mood
from watchtest.views.status.status_document import problem_document, provisional_document

SCHEMA = "watchtest.event"
SCHEMA_VERSION = 1
PATHS_LIMIT = 100
UNCHANGED = "unchanged"
"""The state of a run that had nothing to do, because the last verdict is about this very tree."""

Object = dict[str, Any]


class JsonLines:
    """Writes what each event changed, after a first line about the format. The watcher goes on if its reader leaves."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_open = True
        self._has_started = False

    def show(self, before: State, after: State, event: Event | None) -> None:
        if event is None:
            return
        if not self._has_started:
            self._has_started = True
            self._write(_first_line(after, event.at))
        for line in objects(before, after, event):
            self._write(line)

    def _write(self, line: Object) -> None:
        self._is_open = self._is_open and write_line(self._stream, json.dumps(line))


def _first_line(state: State, at: float) -> Object:
    lanes = [lane.lane.value for lane in state.ranked]
    about = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "version": __version__, "lanes": lanes}
    return {"event": "began", "at": timestamp(at), "lane": None, **about}


def objects(before: State, after: State, event: Event) -> Iterator[Object]:
    """Yield what to report of `event`, which took the watcher from `before` to `after`."""
    for fact in transitions.facts_of(before, after, event):
        lane = after.lanes[fact.lane]
        name = None if isinstance(fact, transitions.WatcherLeaves) else lane.lane.value
        for kind, fields in _objects_of(fact, lane, event.at):
            yield {"event": kind, "at": timestamp(event.at), "lane": name, **fields}


def _objects_of(fact: transitions.Fact, lane: LaneState, at: float) -> Iterator[tuple[str, Object]]:  # noqa: C901 - one flat match over all facts
    match fact:
        case transitions.FilesChanged(paths=paths):
            named = sorted(paths - {EVERYTHING})
            shown = [one_line(path, MESSAGE_LIMIT) for path in named[:PATHS_LIMIT]]
            yield "changed", {"paths": shown, "count": len(named), "everything": EVERYTHING in paths}
        case transitions.RunStopping(run=run, stop=StopReason.SUPERSEDED, reason=reason):
            yield "superseding", {"run": run.id, "reason": one_line(reason)}
        case transitions.SourceBlockChanged(reason=reason):
            yield "hindered", {"reason": one_line(reason) or None}
        case transitions.RunRequestAnswered(run=run_id, refusal=refusal):
            yield "asked", {"run": run_id or None, "refused": one_line(refusal) if refusal else None}
        case transitions.CancelRequestAnswered(run=run_id, is_kill=is_kill):
            yield "cancelling", {"run": run_id or None, "kill": is_kill}
        case transitions.LanePaused():
            yield "paused", {}
        case transitions.LaneResumed():
            yield "resumed", {}
        case transitions.PolicyChanged(configured=configured, override=override):
            yield "policy", {"policy": (override or configured).value, "configured": configured.value}
        case transitions.RetryBegan():
            yield "retrying", {}
        case transitions.LaneWaits(reason=reason):
            yield "waiting", {"reason": one_line(reason)}
        case transitions.NoteShown(text=text, is_repeated=False):
            yield "note", {"text": cut(text, MESSAGE_LIMIT)}
        case transitions.BoxChanged(box=box):
            words = {"engine": box.engine, "id": box.id, "image": box.image, "state": box.state}
            yield "box", {**{key: clean(text) for key, text in words.items()}, "restarts": box.restarts}
        case transitions.BoxDisappeared(problem=problem, broken=Broken()):
            yield "box_lost", {"problem": problem_document(problem), "retry_at": _retry_at(lane)}
        case transitions.BuildChanged():
            yield "environment", _build(fact)
        case transitions.ServiceChanged(service=service):
            about = {"name": clean(service.name), "state": service.state, "restarts": service.restarts}
            yield "service", {**about, "reason": cut(service.reason, MESSAGE_LIMIT) or None}
        case transitions.RunStarted(run=run):
            yield "started", {"run": run.id, "trigger": run.trigger.value}
        case transitions.TestsSelected(run=run):
            count = len(run.selection.tests) if isinstance(run.selection, Only) else None
            yield "selected", {"run": run.id, "tests": count, "because": cut(run.selection.because, MESSAGE_LIMIT)}
        case transitions.TestsPromised(run=run, total=total):
            yield "collected", {"run": run.id, "total": total}
        case transitions.ResultsArrived(run=run, results=results):
            yield from (("result", {"run": run.id, **_result(result)}) for result in results)
        case transitions.FailuresDoubted(run=run, failures=failures):
            yield "confirming", {"run": run.id, "failures": failures}
        case transitions.RunFinished(finished=finished, ending=ending):
            if finished.state is not RunState.SUPERSEDED:
                yield from (("result", {"run": finished.run.id, **_result(result)}) for result in fact.unreported)
            ended: Object = {
                "state": finished.state.value,
                "reason": cut(finished.reason, MESSAGE_LIMIT) or None,
                "tree": ending.snapshot.id if isinstance(ending, Judged) else None,
                "successor": finished.successor or None,
                "problem": problem_document(ending.problem if isinstance(ending, ToolFailure) else None),
            }
            yield "ended", _ended(finished.run, lane, at - finished.started_at, ended)
        case transitions.RunWithdrawn(run=run, tree=tree, started_at=started_at):
            ended = {"state": UNCHANGED, "reason": None, "tree": tree, "successor": None, "problem": None}
            yield "ended", _ended(run, lane, at - started_at, ended)
        case transitions.WatcherLeaves():
            yield "leaving", {}
        case _:
            pass


def _ended(run: Run, lane: LaneState, duration_s: float, fields: Object) -> Object:
    latest = Counter(known.result.outcome for known in lane.knowledge.tests.values())
    return {
        "run": run.id,
        **fields,
        "duration_s": round(max(0.0, duration_s), 3),
        "verdict": lane.knowledge.verdict.value,
        "colour": mood(lane).colour.value,
        "provisional": provisional_document(lane.provisional),
        "counts": {outcome.value: latest[outcome] for outcome in Outcome},
        "retry_at": _retry_at(lane),
    }


def _build(fact: transitions.BuildChanged) -> Object:
    match fact.build:
        case Building():
            return {"state": "building", "problem": None}
        case BuildFailed(problem=problem):
            return {"state": "failed", "problem": problem_document(problem)}
        case _:
            return {"state": "ready" if fact.is_ready else "dropped", "problem": None}


def _result(result: Result) -> Object:
    failure = result.failure
    where = (failure.where or failure.crash) if failure is not None else None
    return {
        "id": cut(result.test, MESSAGE_LIMIT),
        "outcome": result.outcome.value,
        "duration_s": round(max(0.0, result.duration_s), 6),
        "file": clean(where.file) if where is not None else None,
        "line": max(where.line, 1) if where is not None else None,
        "message": cut(failure.message, MESSAGE_LIMIT) if failure is not None else None,
    }


def _retry_at(lane: LaneState) -> str | None:
    return optional_timestamp(lane.activity.retry_at) if isinstance(lane.activity, Broken) else None
