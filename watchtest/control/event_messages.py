"""The messages of the event stream about one step of the watcher. Pure.

status    the activity, verdict, pending changes or problem of a lane has changed; sends all of them
run       a run was accepted, progressed or ended; sends its report, as GET /runs/{id} does
result    a test of a current run has ended; sends its result and number, as GET /runs/{id}/results does
box       the box of a lane, or one of its services, has changed its state
problem   a problem prevents a verdict, or (null) no longer does
note      a message to show, such as the progress of setup or a file that was left out
reset     events were missed and can no longer be sent; the client has to read everything again
end       the watcher is stopping
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from watchtest.control.result_log import NumberedResult, approximate_size
from watchtest.control.run_reports import RunReport
from watchtest.core.model import Result, Run
from watchtest.core.state import LaneState, State, Working
from watchtest.core.text import NOTE_LIMIT, cut
from watchtest.core.transitions import Fact, NoteShown, ResultsArrived, RunFinished
from watchtest.views.status.status_document import box_document, lane_summary, problem_document, result_document

Document = dict[str, Any]
MessageKind = Literal["status", "run", "result", "box", "problem", "note", "reset", "end"]


class EventMessage(NamedTuple):
    """One event. Its document is created when a client reads it, and keeps no state alive.

    Every test of every run makes one, so this is a tuple, which is cheap to create.
    """

    kind: MessageKind
    document: Callable[[], Document]
    size: int = 1000


def status_message(lane: LaneState) -> EventMessage:
    document = {
        "lane": lane.lane.value,
        **lane_summary(lane),
        "paused": lane.is_paused,
        "waits_for": lane.waits_for or None,
        "waiting_runs": len(lane.queue.waiting),
    }
    return EventMessage("status", lambda: document)


def event_messages(
    before: State,
    after: State,
    facts: Sequence[Fact],
    reports: Iterable[RunReport],
    results: Mapping[str, Iterable[NumberedResult]],
) -> Iterator[EventMessage]:
    """Yield the messages about one step. Results come before the end of their run."""
    for fact in facts:
        if isinstance(fact, ResultsArrived | RunFinished):
            for number, result in results[fact.run.id]:
                yield EventMessage("result", partial(_result, fact.run, number, result), approximate_size(result))
    for report in reports:
        yield EventMessage("run", report.document)
    for lane in after.ranked:
        was = before.lanes[lane.lane]
        if was is lane:
            continue
        if was.problem != lane.problem:
            yield _lane_message("problem", lane, problem_document(lane))
        if was.box.info != lane.box.info or was.box.services != lane.box.services:
            yield _lane_message("box", lane, box_document(lane))
        if _status_inputs(was) != _status_inputs(lane):
            yield status_message(lane)
    for fact in facts:
        if isinstance(fact, NoteShown):
            note = {"lane": fact.lane.value, "text": cut(fact.text, NOTE_LIMIT)}
            yield EventMessage("note", partial(dict, note))


def _lane_message(kind: Literal["problem", "box"], lane: LaneState, document: Document | None) -> EventMessage:
    message = {"lane": lane.lane.value, kind: document}
    return EventMessage(kind, lambda: message)


def _result(run: Run, number: int, result: Result) -> Document:
    return {"run": run.id, "lane": run.lane.value, "number": number, **result_document(result)}


def _status_inputs(lane: LaneState) -> tuple[object, ...]:
    """Return everything that the status of a lane depends on. This runs after every event, so it creates no status."""
    working = lane.activity if isinstance(lane.activity, Working) else None
    return (
        type(lane.activity),
        type(working.phase) if working else None,
        working.changes if working else None,
        lane.is_paused,
        lane.pending,
        lane.knowledge.verdict,
        lane.knowledge.at,
        lane.waits_for,
        len(lane.queue.waiting),
        lane.problem,
    )
