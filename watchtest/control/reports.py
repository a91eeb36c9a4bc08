"""What can be told of one run, from the watcher's own state: on its way, or at its end. Pure, but for its memory."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from watchtest.core.events import Event
from watchtest.core.model import Lane, Outcome, Result, RunState, Trigger
from watchtest.core.state import Asked, Broken, Executing, Finished, LaneState, State, Working

REMEMBERED = 200
ON_THE_WAY = (RunState.QUEUED, RunState.SYNCING, RunState.RUNNING)


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run as it stands, or as it ended."""

    id: str
    lane: Lane
    trigger: Trigger
    state: RunState
    reason: str = ""
    """Why it ended as it did; for one that waits, what it waits for."""
    queued_at: float | None = None
    ended_at: float | None = None
    tree: str | None = None
    counts: Mapping[Outcome, int] = field(default_factory=dict)
    total: int | None = None
    """How many tests it promised to report on; None: not known."""
    is_stopping: bool = False
    successor: str = ""
    """The run that goes on in its place."""

    @property
    def has_ended(self) -> bool:
        return self.state not in ON_THE_WAY

    @property
    def document(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "lane": self.lane.value,
            "trigger": self.trigger.value,
            "state": self.state.value,
            "ended": self.has_ended,
            "stopping": self.is_stopping,
            "reason": self.reason or None,
            "successor": self.successor or None,
            "queued_at": _time(self.queued_at),
            "ended_at": _time(self.ended_at),
            "tree": self.tree,
            "counts": {outcome.value: self.counts.get(outcome, 0) for outcome in Outcome},
            "progress": {"done": sum(self.counts.values()), "total": self.total},
        }


class Reports:
    """Every run that waits or is under way, and the last that ended: what is older, the history tells."""

    def __init__(self) -> None:
        self._ended: OrderedDict[str, RunReport] = OrderedDict()

    def follow(self, before: State, after: State, event: Event) -> None:
        """Remember what ended by this event."""
        was, now = before.lanes[event.lane], after.lanes[event.lane]
        if now.last is not None and now.last is not was.last:
            self._remember(_finished(was, now.last))
        for dropped in now.dropped:
            report = _waiting(now, dropped.asked, RunState.CANCELLED, dropped.reason)
            self._remember(replace(report, ended_at=event.at))

    def find(self, state: State, run_id: str) -> RunReport | None:
        return next((report for report in _on_the_way(state) if report.id == run_id), self._ended.get(run_id))

    def current(self, state: State) -> RunReport | None:
        """The run under way; of several, the one of the highest lane."""
        return next((_working(lane.activity) for lane in state.ranked if isinstance(lane.activity, Working)), None)

    def _remember(self, report: RunReport) -> None:
        self._ended[report.id] = report
        while len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)


def _on_the_way(state: State) -> Iterable[RunReport]:
    for lane in state.ranked:
        if isinstance(lane.activity, Working):
            yield _working(lane.activity)
        for asked in lane.asked:
            yield _waiting(lane, asked, RunState.QUEUED, _hindrance(lane))


def _working(working: Working) -> RunReport:
    phase = working.phase if isinstance(working.phase, Executing) else None
    return RunReport(
        id=working.run.id,
        lane=working.run.lane,
        trigger=working.run.trigger,
        state=RunState.RUNNING if phase else RunState.SYNCING,
        queued_at=working.since,
        tree=working.snapshot.id if working.snapshot else None,
        counts=_counts(phase.results.values() if phase else ()),
        total=(len(phase.promised) or None) if phase else None,
        is_stopping=working.stop is not None,
    )


def _waiting(lane: LaneState, asked: Asked, state: RunState, reason: str) -> RunReport:
    return RunReport(asked.id, lane.lane, Trigger.MANUAL, state, reason, queued_at=asked.at)


def _finished(was: LaneState, last: Finished) -> RunReport:
    snapshot = was.activity.snapshot if isinstance(was.activity, Working) else None
    return RunReport(
        id=last.run.id,
        lane=last.run.lane,
        trigger=last.run.trigger,
        state=last.state,
        reason=last.reason,
        queued_at=last.started_at,
        ended_at=last.ended_at,
        tree=snapshot.id if snapshot else None,
        counts=_counts(last.results.values()),
        total=len(last.results),
        successor=last.successor,
    )


def _hindrance(lane: LaneState) -> str:
    if lane.is_paused:
        return f"the {lane.lane.value} lane is paused: `watchtest resume` lets it go on"
    if isinstance(lane.activity, Working):
        return f"run {lane.activity.run.id} is under way"
    if isinstance(lane.activity, Broken):
        return lane.activity.problem.message
    return lane.waits_for


def _counts(results: Iterable[Result]) -> Mapping[Outcome, int]:
    return Counter(result.outcome for result in results)


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
