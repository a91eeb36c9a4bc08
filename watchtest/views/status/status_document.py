"""Builds the status document, which editors and scripts read, from the state. Pure; unknown values are null."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Literal, assert_never

from watchtest.core import text
from watchtest.core.model import (
    All,
    Failure,
    Lane,
    Location,
    Only,
    Outcome,
    Problem,
    Provisional,
    Result,
    Run,
    ServiceInfo,
)
from watchtest.core.state import (
    Broken,
    Executing,
    Idle,
    KnownTest,
    LaneState,
    Starting,
    State,
    Stopped,
    Syncing,
    Working,
)
from watchtest.core.verdict import file_of
from watchtest.views.eta import eta_s
from watchtest.views.mood import mood

SCHEMA = "watchtest.status"
SCHEMA_VERSION = 1
FAILURES_LIMIT = 200
OUTPUTS_LIMIT = 200_000
"""For all failures of a lane together: the file is written four times a second."""

Document = dict[str, Any]
Activity = Literal["starting", "idle", "syncing", "running", "paused", "degraded", "stopped"]
SOURCES = {Lane.SAVE: "worktree", Lane.STAGE: "index", Lane.COMMIT: "head"}
# The document has no count of its own for unexpected passes.
COUNTED = {outcome: outcome.value for outcome in Outcome} | {Outcome.XPASSED: "passed"}


@dataclass(frozen=True, slots=True)
class WriterInfo:
    """The process that writes the document, so that readers can tell whether it is still alive."""

    pid: int
    host: str
    version: str
    started_at: float
    pid_start: int | None = None
    boot_id: str | None = None
    heartbeat_s: float = 5.0


def document(
    state: State, *, seq: int, now: float, writer: WriterInfo, flaky: frozenset[str] | None = None
) -> Document:
    """Return the document; its top level repeats the highest lane that is on. `flaky` is None if unknown."""
    lanes = {lane: _lane(state.lanes[lane], now, flaky) if lane in state.lanes else None for lane in Lane}
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "seq": seq,
        "updated_at": text.timestamp(now),
        "writer": asdict(writer) | {"started_at": text.timestamp(writer.started_at)},
        **(lanes[state.top.lane] or {}),
        "lanes": {lane.value: lanes[lane] for lane in Lane},
    }


def activity(lane: LaneState) -> Activity:
    """Return the activity of a lane as the document names it."""
    match lane.activity:
        case Broken() | Working(problem=Problem()):
            return "degraded"
        case Starting():
            return "starting"
        case Idle():
            return "paused" if lane.is_paused else "idle"
        case Working(phase=Syncing()):
            return "syncing"
        case Working():
            return "running"
        case Stopped():
            return "stopped"
        case _:
            assert_never(lane.activity)


def locations(lane: LaneState) -> str:
    """Return one line `path:line:col: message` per failure, the format in which editors read lists of errors."""
    return "".join(_location(known) + "\n" for known in lane.knowledge.red[:FAILURES_LIMIT])


def _location(known: KnownTest) -> str:
    failure = known.result.failure
    location = (failure.where or failure.crash) if failure else None
    # The format requires a line: without a location, use the first one.
    location = location or Location(file_of(known.result.test), 1)
    file = text.one_line(location.file, text.ID_LIMIT)
    column = failure.column if failure and failure.column and failure.where == location else 1
    message = (text.one_line(failure.message) if failure else "") or known.result.outcome.value
    return f"{file}:{location.line}:{column}: {message}"


def _lane(lane: LaneState, now: float, flaky: frozenset[str] | None) -> Document:
    knowledge = lane.knowledge
    unconfirmed = _unconfirmed(lane)
    failures, is_truncated = _failures((*unconfirmed, *knowledge.red), len(unconfirmed), flaky)
    return {
        **lane_summary(lane),
        "scope": _scope(lane),
        "progress": _progress(lane, now),
        "run_counts": _run_counts(lane),
        "known_counts": _known_counts(lane),
        "failures": failures,
        "failures_total": len(unconfirmed) + len(knowledge.red),
        "truncated": is_truncated,
        "box": box_document(lane),
    }


def _code(lane: LaneState) -> Document:
    snapshot, run = lane.knowledge.snapshot, lane.knowledge.run
    return {
        "source": SOURCES[lane.lane],
        "tree": snapshot.id if snapshot else None,
        "head": snapshot.head if snapshot else None,
        "branch": text.clean(snapshot.branch) if snapshot and snapshot.branch else None,
        "dirty": snapshot.dirty if snapshot else None,
        "trigger": run.trigger.value if run else None,
    }


def _pending(lane: LaneState) -> Document:
    pending = lane.pending
    if isinstance(lane.activity, Working):
        pending |= lane.activity.changes  # they stay pending until the run is judged
    return {"changes": len(pending.paths), "since": text.optional_timestamp(pending.since)}


def _scope(lane: LaneState) -> Document | None:
    working = lane.activity if isinstance(lane.activity, Working) else None
    run = working.run if working else lane.knowledge.run
    if run is None:
        return None
    match run.selection:
        case All():
            kind, selected = "all", _collected(lane, run)
        case Only(tests=tests, is_proof=is_proof):
            # The selection may name files, and tests that no longer exist.
            collected = _collected(lane, run)
            kind, selected = "affected" if is_proof else "failed", len(tests) if collected is None else collected
        case _:
            assert_never(run.selection)
    return {
        "kind": kind,
        "wave": wave(lane),
        "selected": selected,
        "known": len(lane.knowledge.tests),
        "because": text.cut(run.selection.because, text.MESSAGE_LIMIT),
    }


def wave(lane: LaneState) -> int | None:
    """Return which part of a selection runs: 1 the tests most likely affected, 2 the rest; None if all tests run."""
    working = lane.activity if isinstance(lane.activity, Working) else None
    run = working.run if working else lane.knowledge.run
    if run is None or not isinstance(run.selection, Only) or not run.selection.is_proof:
        return None
    if working is None or not isinstance(working.phase, Executing):
        return 1 if working else 2
    waiting = (working.phase.promised - working.phase.results.keys()).intersection(run.selection.first)
    return 1 if waiting or not working.phase.promised else 2


def _collected(lane: LaneState, run: Run) -> int | None:
    """Return how many tests a run has; None while that is unknown."""
    if isinstance(lane.activity, Working):
        phase = lane.activity.phase
        return len(phase.promised) or None if isinstance(phase, Executing) else None
    return sum(known.run == run.id for known in lane.knowledge.tests.values())


def _progress(lane: LaneState, now: float) -> Document | None:
    match lane.activity:
        case Working(phase=Executing(promised=promised, results=results)):
            eta = eta_s(lane, now)
            rounded = None if eta is None else round(eta, 1)
            return {"done": len(results), "total": len(promised) or None, "eta_s": rounded}
        case _:
            return None


def _run_counts(lane: LaneState) -> Document | None:
    match lane.activity:
        case Working(phase=Executing(results=results)):
            return _counts(result.outcome for result in results.values())
        case _:
            pass
    if lane.runs.last is None:
        return None
    run = lane.knowledge.run
    if run is not None and run.id == lane.runs.last.run.id:
        # Knowledge also has files that could not be collected, and tests that never reported.
        return _counts(known.result.outcome for known in lane.knowledge.tests.values() if known.run == run.id)
    return _counts(result.outcome for result in lane.runs.last.results.values())


def _known_counts(lane: LaneState) -> Document:
    tests = lane.knowledge.tests.values()
    tree = lane.knowledge.snapshot.id if lane.knowledge.snapshot else None
    return _counts(known.result.outcome for known in tests) | {"stale": sum(known.snapshot != tree for known in tests)}


def _counts(outcomes: Iterable[Outcome]) -> Document:
    counts = {"passed": 0, "failed": 0, "error": 0, "skipped": 0, "xfailed": 0, "stale": 0}
    for outcome in outcomes:
        counts[COUNTED[outcome]] += 1
    return counts


def _unconfirmed(lane: LaneState) -> tuple[KnownTest, ...]:
    """Return the failures that the current run has seen, except those that the verdict has, too."""
    match lane.activity:
        case Working(run=run, snapshot=snapshot, phase=Executing(results=results, red=red)) if red:
            known, tree = lane.knowledge.tests, snapshot.id if snapshot else ""
            new = [test for test in results if test in red]
            new = [test for test in new if test not in known or not known[test].result.outcome.is_red]
            return tuple(KnownTest(results[test], tree, run.id, is_new=True) for test in new)
        case _:
            return ()


def _failures(
    red: tuple[KnownTest, ...], unconfirmed: int, flaky: frozenset[str] | None
) -> tuple[list[Document], bool]:
    """Return the documents of these failures, the first of which are not confirmed, and whether anything was cut."""
    left, is_truncated = OUTPUTS_LIMIT, len(red) > FAILURES_LIMIT
    failures = []
    for number, known in enumerate(red[:FAILURES_LIMIT]):
        failure = known.result.failure or Failure(kind=known.result.outcome.value, message="")
        room = min(text.EXCERPT_LIMIT, left)
        output = text.cut_front(failure.output, room) if room else ""
        left -= len(output)
        is_truncated = is_truncated or len(failure.output) > room or len(failure.message) > text.MESSAGE_LIMIT
        fields = {
            "id": text.cut(known.result.test, text.MESSAGE_LIMIT),
            **_failure_fields(failure),
            "confirmed": number >= unconfirmed,
            "new": known.is_new,
            "since": text.optional_timestamp(known.red_since),
            "flaky": None if flaky is None else known.result.test in flaky,
            "output": output,
        }
        failures.append(fields)
    return failures, is_truncated


def _failure_fields(failure: Failure) -> Document:
    crash = failure.crash
    return {
        "kind": text.one_line(failure.kind),
        "file": text.clean(failure.where.file) if failure.where else None,
        "line": _counted_from_one(failure.where.line) if failure.where else None,
        "column": _counted_from_one(failure.column),
        "source_line": text.cut(failure.source_line, text.MESSAGE_LIMIT) if failure.source_line is not None else None,
        "message": text.cut(failure.message, text.MESSAGE_LIMIT),
        "crash": {"file": text.clean(crash.file), "line": max(crash.line, 1)} if crash else None,
    }


def result_document(result: Result) -> Document:
    """Return the result of one test in one run, with the fields of the document."""
    is_valid = isfinite(result.duration_s) and result.duration_s >= 0
    document: Document = {
        "test": text.cut(result.test, text.MESSAGE_LIMIT),
        "outcome": result.outcome.value,
        "duration_s": round(result.duration_s, 6) if is_valid else 0.0,
        "failure": None,
    }
    if (failure := result.failure) is not None:
        texts = {name: text.cut_front(getattr(failure, name), text.EXCERPT_LIMIT) for name in ("text", "output")}
        document["failure"] = _failure_fields(failure) | texts
    return document


def lane_summary(lane: LaneState) -> Document:
    """Return the activity and the verdict of a lane, without anything that grows with the number of tests."""
    shown = mood(lane)
    return {
        "activity": activity(lane),
        "verdict": lane.knowledge.verdict.value,
        "colour": shown.colour.value,
        "doubt": shown.doubt or None,
        "verdict_at": text.optional_timestamp(lane.knowledge.at),
        "provisional": provisional_document(lane.provisional),
        "reason": text.cut(lane.knowledge.reason, text.MESSAGE_LIMIT) or None,
        "run_id": lane.knowledge.run.id if lane.knowledge.run else None,
        "code": _code(lane),
        "pending": _pending(lane),
        "problem": problem_document(lane.problem),
    }


def _counted_from_one(number: int | None) -> int | None:
    return number if number is not None and number > 0 else None


def box_document(lane: LaneState) -> Document | None:
    box = lane.box.info
    if box is None:
        return None
    return {
        "engine": text.clean(box.engine),
        "id": text.clean(box.id),
        "image": text.clean(box.image),
        "state": text.clean(box.state),
        "since": text.timestamp(box.since),
        "restarts": box.restarts,
        "services": [_service(service) for service in lane.box.services],
    }


def _service(service: ServiceInfo) -> Document:
    return {
        "name": text.clean(service.name),
        "state": service.state,
        "since": text.timestamp(service.since),
        "restarts": service.restarts,
        "reason": text.cut(service.reason, text.MESSAGE_LIMIT) or None,
    }


def problem_document(problem: Problem | None) -> Document | None:
    return None if problem is None else _explained(problem.code, problem.message, problem.hint)


def provisional_document(provisional: Provisional | None) -> Document | None:
    if provisional is None:
        return None
    return _explained(provisional.code.value, provisional.message, provisional.hint)


def _explained(code: str, message: str, hint: str) -> Document:
    message, hint = text.cut(message, text.MESSAGE_LIMIT), text.cut(hint, text.MESSAGE_LIMIT)
    return {"code": code, "message": message, "hint": hint or None}
