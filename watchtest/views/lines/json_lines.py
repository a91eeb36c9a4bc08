"""The events of the plain view for machines: one JSON object a line, its fields as in `eventschema`.

The end of its reader is not our end. What came out of the box is bounded and without control sequences.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TextIO, assert_never

from watchtest import __version__
from watchtest.core.events import (
    EVERYTHING,
    BoxLost,
    BoxSeen,
    Broke,
    CancelAsked,
    Changed,
    Collected,
    Event,
    Hindered,
    Judged,
    Noted,
    PauseAsked,
    Peeked,
    PolicyAsked,
    QuitAsked,
    ResumeAsked,
    RunAsked,
    RunEnded,
    Selected,
    ServicesSeen,
    SnapshotTaken,
    TestsEnded,
    Unchanged,
    Woke,
)
from watchtest.core.model import Only, Outcome, Problem, Result, RunState, Selection, Stop
from watchtest.core.state import Broken, Executing, LaneState, State, Working
from watchtest.core.text import clean, cut, one_line
from watchtest.views.lines.plain_lines import silence
from watchtest.views.status.status_document import MESSAGE_LIMIT, timestamp

SCHEMA = "watchtest.event"
SCHEMA_VERSION = 1
PATHS_LIMIT = 100
UNCHANGED = "unchanged"
"""The end of a run that had nothing to do: the last verdict speaks of this very tree."""

Object = dict[str, Any]


class JsonLines:
    """Writes what each event changed; a first line says what follows."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_heard = True
        self._has_begun = False

    def show(self, before: State, after: State, event: Event | None) -> None:
        if event is None:
            return
        if not self._has_begun:
            self._has_begun = True
            self._write(began(after, event.at))
        for said in objects(before, after, event):
            self._write(said)

    def _write(self, said: Object) -> None:
        if not self._is_heard:
            return
        try:
            # Escaped beyond ASCII, so that no encoding of the stream can lose anything.
            self._stream.write(json.dumps(said) + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # the reader has gone, or the stream was closed: the watcher goes on unheard
            self._is_heard = False
            silence(self._stream)


def began(state: State, at: float) -> Object:
    lanes = [lane.lane.value for lane in state.ranked]
    about = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "version": __version__, "lanes": lanes}
    return {"event": "began", "at": timestamp(at), "lane": None, **about}


def objects(before: State, after: State, event: Event) -> Iterator[Object]:
    """What to say of `event`, which took the watcher from `before` to `after`."""

    def of(lane: LaneState, kind: str, fields: Object) -> Object:
        return {"event": kind, "at": timestamp(event.at), "lane": lane.lane.value, **fields}

    now = after.lanes[event.lane]
    for kind, fields in _said(before.lanes[event.lane], now, event):
        yield of(now, kind, fields)
    for lane in after.ranked:
        for kind, fields in _started(before.lanes[lane.lane], lane):
            yield of(lane, kind, fields)
    if after.is_leaving and not before.is_leaving:
        yield {"event": "leaving", "at": timestamp(event.at), "lane": None}


def _said(before: LaneState, after: LaneState, event: Event) -> Iterator[tuple[str, Object]]:
    match event:
        case Changed(paths=paths):
            named = sorted(paths - {EVERYTHING})
            shown = [one_line(path, MESSAGE_LIMIT) for path in named[:PATHS_LIMIT]]
            yield "changed", {"paths": shown, "count": len(named), "everything": EVERYTHING in paths}
        case Peeked():
            match after.activity:
                case Working(run=run, stop=Stop.SUPERSEDED, stop_reason=why) if after.activity is not before.activity:
                    yield "superseding", {"run": run.id, "reason": one_line(why)}
                case _:
                    pass
        case Hindered(reason=reason):
            if reason != before.hindrance:
                yield "hindered", {"reason": one_line(reason) or None}
        case RunAsked():
            is_refused = bool(after.note) and after.note != before.note
            yield "asked", {"run": event.id or None, "refused": one_line(after.note) if is_refused else None}
        case CancelAsked():
            yield "cancelling", {"run": event.run or _run_id(before), "kill": event.is_kill}
        case PauseAsked():
            yield "paused", {}
        case ResumeAsked():
            yield "resumed", {}
        case PolicyAsked():
            yield "policy", {"policy": (after.override or after.policy).value, "configured": after.policy.value}
        case Woke():
            if after.runs != before.runs:
                yield "retrying", {}
        case Noted(text=text, is_kept=is_kept):
            if text and (is_kept or text != before.note):
                yield "note", {"text": cut(text, MESSAGE_LIMIT)}
        case BoxSeen(box=box):
            if box != before.box:
                words = {"engine": box.engine, "id": box.id, "image": box.image, "state": box.state}
                yield "box", {**{key: clean(text) for key, text in words.items()}, "restarts": box.restarts}
        case BoxLost(problem=problem):
            if isinstance(after.activity, Broken) and after.activity is not before.activity:
                yield "box_lost", {"problem": _problem(problem), "retry_at": _retry_at(after)}
        case ServicesSeen():
            yield from _services(before, after)
        case Selected(run=run_id, selection=selection):
            yield "selected", {"run": run_id, **_selection(selection)}
        case Collected(run=run_id):
            if (total := _promised(after)) and not _promised(before):
                yield "collected", {"run": run_id, "total": total}
        case TestsEnded(run=run_id, results=results):
            yield from (("result", {"run": run_id, **_result(result)}) for result in results)
        case RunEnded():
            yield from _ended(before, after, event)
        case SnapshotTaken() | QuitAsked():
            pass
        case _:
            assert_never(event)


def _started(before: LaneState, after: LaneState) -> Iterator[tuple[str, Object]]:
    if after.runs != before.runs and isinstance(after.activity, Working):
        run = after.activity.run
        yield "started", {"run": run.id, "trigger": run.trigger.value}
    elif after.waits_for and after.waits_for != before.waits_for:
        yield "waiting", {"reason": one_line(after.waits_for)}


def _services(before: LaneState, after: LaneState) -> Iterator[tuple[str, Object]]:
    old = {service.name: (service.state, service.restarts) for service in before.services}
    for service in after.services:
        if old.get(service.name) != (service.state, service.restarts):
            reason = cut(service.reason, MESSAGE_LIMIT) or None
            about = {"name": clean(service.name), "state": service.state, "restarts": service.restarts}
            yield "service", {**about, "reason": reason}


def _ended(before: LaneState, after: LaneState, event: RunEnded) -> Iterator[tuple[str, Object]]:
    if not isinstance(before.activity, Working) or before.activity.run.id != event.run:
        return
    last = after.last if after.last is not None and after.last.run.id == event.run else None
    ending = event.ending
    tree = ending.snapshot.id if isinstance(ending, Judged | Unchanged) else None
    problem = ending.problem if isinstance(ending, Broke) else None
    if isinstance(ending, Judged) and last is not None and last.state is not RunState.SUPERSEDED:
        # What the run owed was in no report: files that broke the collection, tests that were never heard of.
        told = before.activity.phase.results if isinstance(before.activity.phase, Executing) else {}
        for test, result in last.results.items():
            if told.get(test) != result:
                yield "result", {"run": event.run, **_result(result)}
    yield (
        "ended",
        {
            "run": event.run,
            "state": last.state.value if last is not None else UNCHANGED,
            "reason": (cut(last.reason, MESSAGE_LIMIT) if last is not None else "") or None,
            "tree": tree,
            "duration_s": round(max(0.0, event.at - before.activity.since), 3),
            "verdict": after.knowledge.verdict.value,
            "counts": _counts(after),
            "successor": (last.successor if last is not None else "") or None,
            "problem": _problem(problem) if problem is not None else None,
            "retry_at": _retry_at(after),
        },
    )


def _counts(lane: LaneState) -> Object:
    """Of the last word on every known test."""
    outcomes = [known.result.outcome for known in lane.knowledge.tests.values()]
    return {outcome.value: outcomes.count(outcome) for outcome in Outcome}


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


def _selection(selection: Selection) -> Object:
    count = len(selection.tests) if isinstance(selection, Only) else None
    return {"tests": count, "because": cut(selection.because, MESSAGE_LIMIT)}


def _problem(problem: Problem) -> Object:
    hint = cut(problem.hint, MESSAGE_LIMIT) or None
    return {"code": problem.code, "message": cut(problem.message, MESSAGE_LIMIT), "hint": hint}


def _retry_at(lane: LaneState) -> str | None:
    at = lane.activity.retry_at if isinstance(lane.activity, Broken) else None
    return timestamp(at) if at is not None else None


def _run_id(lane: LaneState) -> str | None:
    return lane.activity.run.id if isinstance(lane.activity, Working) else None


def _promised(lane: LaneState) -> int:
    match lane.activity:
        case Working(phase=Executing(promised=promised)):
            return len(promised)
        case _:
            return 0
