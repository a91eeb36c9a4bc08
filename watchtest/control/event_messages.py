"""What the stream of events tells of a step of the watcher. Pure; knows nobody who listens.

status    a lane's activity, verdict, pending changes or problem is another: all of them as they are now
run       a run was accepted, went a step further, or ended: its report, as GET /runs/{id} gives it
result    a test of the run under way has ended: as GET /runs/{id}/results gives it, with its number
box       the box of a lane, or one of its services, is in another state
problem   something stands between the user and a verdict, or no longer does (null)
note      a line worth showing: progress of setup, a file left out
reset     events are missing: what was missed cannot be told any more, begin anew
end       the watcher leaves
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from watchtest.control.result_log import Numbered, weight
from watchtest.control.run_reports import RunReport
from watchtest.core.model import Result, Run
from watchtest.core.state import LaneState, State, Working
from watchtest.core.text import cut
from watchtest.core.transitions import Fact, NoteShown, ResultsArrived, RunFinished
from watchtest.views.status.status_document import box_document, lane_summary, problem_document, result_document

Document = dict[str, Any]
Kind = Literal["status", "run", "result", "box", "problem", "note", "reset", "end"]
NOTE_LIMIT = 1000


class Told(NamedTuple):
    """One event. The document is made when somebody wants it, and holds on to no state. There is one for every test
    of every run, so it is of the cheapest kind."""

    kind: Kind
    document: Callable[[], Document]
    weight: int = 1000


def status_of(lane: LaneState) -> Told:
    document = {
        "lane": lane.lane.value,
        **lane_summary(lane),
        "paused": lane.is_paused,
        "waits_for": lane.waits_for or None,
        "waiting_runs": len(lane.queue.waiting),
    }
    return Told("status", lambda: document)


def tell(
    before: State,
    after: State,
    facts: Sequence[Fact],
    reports: Iterable[RunReport],
    results: Mapping[str, Iterable[Numbered]],
) -> Iterator[Told]:
    """Yield the messages about one step. Results come before the end of the run that they led to."""
    for fact in facts:
        if isinstance(fact, ResultsArrived | RunFinished):
            for number, result in results[fact.run.id]:
                yield Told("result", partial(_result, fact.run, number, result), weight(result))
    for report in reports:
        yield Told("run", partial(_run, report))
    for lane in after.ranked:
        was = before.lanes[lane.lane]
        if was is lane:
            continue
        if was.problem != lane.problem:
            yield _of_lane("problem", lane, problem_document(lane))
        if was.box.info != lane.box.info or was.box.services != lane.box.services:
            yield _of_lane("box", lane, box_document(lane))
        if _outline(was) != _outline(lane):
            yield status_of(lane)
    for fact in facts:
        if isinstance(fact, NoteShown):
            note = {"lane": fact.lane.value, "text": cut(fact.text, NOTE_LIMIT)}
            yield Told("note", partial(dict, note))


def _of_lane(kind: Literal["problem", "box"], lane: LaneState, document: Document | None) -> Told:
    whole = {"lane": lane.lane.value, kind: document}
    return Told(kind, lambda: whole)


def _run(report: RunReport) -> Document:
    return report.document


def _result(run: Run, number: int, result: Result) -> Document:
    return {"run": run.id, "lane": run.lane.value, "number": number, **result_document(result)}


def _outline(lane: LaneState) -> tuple[object, ...]:
    """All that the status of a lane depends on, without making it: this is asked after every event."""
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
