"""What can be told of one run, from the watcher's own state: on its way, or at its end. Pure, but for its memory."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from watchtest.core.events import Event
from watchtest.core.model import Lane, Only, Outcome, Result, RunState, Selection, Trigger
from watchtest.core.state import Asked, Broken, Executing, Finished, LaneState, State, Stopped, Working

REMEMBERED = 200
NOTHING_NEW = "nothing had changed"
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
    selected: int | None = None
    """How many tests it was asked to run; None: all, or not decided yet."""
    because: str = ""
    is_needless: bool = False
    """Nothing had changed, and nobody had asked for it: it was no run, but whoever has its id hears of its end."""

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
            "selected": self.selected,
            "because": self.because or None,
            "counts": {outcome.value: self.counts.get(outcome, 0) for outcome in Outcome},
            "progress": {"done": sum(self.counts.values()), "total": self.total},
        }


class Reports:
    """Every run that waits or is under way, and the last that ended: what is older, the history tells."""

    def __init__(self) -> None:
        self._ended: OrderedDict[str, RunReport] = OrderedDict()
        self._queued_at: dict[str, float] = {}
        """Of the runs under way that had to wait."""

    def follow(self, before: State, after: State, event: Event) -> tuple[RunReport, ...]:
        """Remember what ended by this event; the runs that came into being, went a step further, or ended."""
        was, now = before.lanes[event.lane], after.lanes[event.lane]
        ended = tuple(self._ends(was, now, event))
        for report in ended:
            self._remember(report)
        stages, news = dict(_stages(before)), dict(_stages(after))
        if stages == news:
            return ended
        waited = {asked.id: asked.at for lane in before.lanes.values() for asked in lane.asked}
        for lane in after.lanes.values():
            if isinstance(lane.activity, Working) and lane.activity.run.id in waited:
                self._queued_at[lane.activity.run.id] = waited[lane.activity.run.id]
        moved = [report for report in self._on_the_way(after) if stages.get(report.id) != news[report.id]]
        return (*ended, *moved)

    def find(self, state: State, run_id: str) -> RunReport | None:
        return next((report for report in self._on_the_way(state) if report.id == run_id), self._ended.get(run_id))

    def known(self, state: State) -> tuple[RunReport, ...]:
        """All of them, in no order; without those that turned out to be no run."""
        return (*self._on_the_way(state), *(report for report in self._ended.values() if not report.is_needless))

    def current(self, state: State) -> RunReport | None:
        """The run under way; of several, the one of the highest lane."""
        under_way = (lane.activity for lane in state.ranked if isinstance(lane.activity, Working))
        return next(map(self._working, under_way), None)

    def _ends(self, was: LaneState, now: LaneState, event: Event) -> Iterator[RunReport]:
        if now.last is not None and now.last is not was.last:
            yield _finished(was, now.last, self._queued_at.pop(now.last.run.id, now.last.started_at))
        elif isinstance(was.activity, Working) and _has_left(was.activity, now):
            report = self._working(was.activity)
            self._queued_at.pop(report.id, None)
            yield replace(report, state=RunState.CANCELLED, reason=NOTHING_NEW, ended_at=event.at, is_needless=True)
        for dropped in now.dropped:
            report = _waiting(now, dropped.asked, RunState.CANCELLED, dropped.reason)
            yield replace(report, ended_at=event.at)

    def _on_the_way(self, state: State) -> Iterator[RunReport]:
        for lane in state.ranked:
            if isinstance(lane.activity, Working):
                yield self._working(lane.activity)
            for asked in lane.asked:
                yield _waiting(lane, asked, RunState.QUEUED, _hindrance(lane))

    def _working(self, working: Working) -> RunReport:
        phase = working.phase if isinstance(working.phase, Executing) else None
        return RunReport(
            id=working.run.id,
            lane=working.run.lane,
            trigger=working.run.trigger,
            state=RunState.RUNNING if phase else RunState.SYNCING,
            queued_at=self._queued_at.get(working.run.id, working.since),
            tree=working.snapshot.id if working.snapshot else None,
            counts=_counts(phase.results.values() if phase else ()),
            total=(len(phase.promised) or None) if phase else None,
            is_stopping=working.stop is not None,
            selected=_selected(working.run.selection),
            because=working.run.selection.because,
        )

    def _remember(self, report: RunReport) -> None:
        self._ended[report.id] = report
        while len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)


def _stages(state: State) -> Iterator[tuple[str, tuple[object, ...]]]:
    """How far each run is, without counting its tests: this is asked after every event."""
    for lane in state.lanes.values():
        if isinstance(lane.activity, Working):
            working = lane.activity
            is_counted = isinstance(working.phase, Executing) and bool(working.phase.promised)
            tree = working.snapshot.id if working.snapshot else ""
            yield working.run.id, (type(working.phase), is_counted, tree, working.stop, id(working.run.selection))
        for asked in lane.asked:
            yield asked.id, (Asked,)


def _has_left(working: Working, now: LaneState) -> bool:
    return not isinstance(now.activity, Working | Stopped) or (
        isinstance(now.activity, Working) and now.activity.run.id != working.run.id
    )


def _waiting(lane: LaneState, asked: Asked, state: RunState, reason: str) -> RunReport:
    selection = asked.selection
    return RunReport(
        asked.id,
        lane.lane,
        Trigger.MANUAL,
        state,
        reason,
        queued_at=asked.at,
        selected=_selected(selection),
        because=selection.because if selection else "",
    )


def _finished(was: LaneState, last: Finished, queued_at: float) -> RunReport:
    snapshot = was.activity.snapshot if isinstance(was.activity, Working) else None
    return RunReport(
        id=last.run.id,
        lane=last.run.lane,
        trigger=last.run.trigger,
        state=last.state,
        reason=last.reason,
        queued_at=queued_at,
        ended_at=last.ended_at,
        tree=snapshot.id if snapshot else None,
        counts=_counts(last.results.values()),
        total=len(last.results),
        successor=last.successor,
        selected=_selected(last.run.selection),
        because=last.run.selection.because,
    )


def _hindrance(lane: LaneState) -> str:
    if lane.is_paused:
        return f"the {lane.lane.value} lane is paused: `watchtest resume` lets it go on"
    if isinstance(lane.activity, Working):
        return f"run {lane.activity.run.id} is under way"
    if isinstance(lane.activity, Broken):
        return lane.activity.problem.message
    return lane.waits_for


def _selected(selection: Selection | None) -> int | None:
    return len(selection.tests) if isinstance(selection, Only) else None


def _counts(results: Iterable[Result]) -> Mapping[Outcome, int]:
    return Counter(result.outcome for result in results)


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else timestamp(seconds)


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
