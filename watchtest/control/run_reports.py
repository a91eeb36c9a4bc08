"""What can be told of one run, from the watcher's own state: on its way, or at its end. Pure, but for its memory."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from watchtest.core.model import Lane, Only, Outcome, Result, Run, RunState, Trigger
from watchtest.core.state import Broken, Executing, LaneState, State, Working
from watchtest.core.transitions import (
    NOTHING_NEW,
    UNDECIDED,
    Fact,
    RunDropped,
    RunFinished,
    RunQueued,
    RunStarted,
    RunStopping,
    RunWithdrawn,
    TestsBegan,
    TestsPromised,
    TestsSelected,
    TreeTaken,
    requested_run,
)

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

    def follow(self, facts: Iterable[Fact], after: State, at: float) -> tuple[RunReport, ...]:
        """Remember the runs that ended; return the reports of all runs that these facts are about, ended ones first."""
        ended: list[RunReport] = []
        moved: set[str] = set()
        for fact in facts:
            match fact:
                case RunFinished(finished=finished):
                    ended.append(_finished(fact, self._queued_at.pop(finished.run.id, finished.started_at)))
                case RunWithdrawn(run=run, started_at=started_at):
                    ended.append(_withdrawn(fact, self._queued_at.pop(run.id, started_at), at))
                case RunDropped(run=run, queued_at=queued_at, reason=reason):
                    ended.append(_report(run, RunState.CANCELLED, reason=reason, queued_at=queued_at, ended_at=at))
                case RunStarted(run=run, queued_at=queued_at):
                    moved.add(run.id)
                    if queued_at is not None:
                        self._queued_at[run.id] = queued_at
                case RunQueued() | TreeTaken() | TestsSelected() | TestsBegan() | TestsPromised() | RunStopping():
                    moved.add(fact.run.id)
                case _:
                    pass
        for report in ended:
            self._remember(report)
        if not moved:
            return tuple(ended)
        return (*ended, *(report for report in self._on_the_way(after) if report.id in moved))

    def find(self, state: State, run_id: str) -> RunReport | None:
        return next((report for report in self._on_the_way(state) if report.id == run_id), self._ended.get(run_id))

    def known(self, state: State) -> tuple[RunReport, ...]:
        """All of them, in no order; without those that turned out to be no run."""
        return (*self._on_the_way(state), *(report for report in self._ended.values() if not report.is_needless))

    def current(self, state: State) -> RunReport | None:
        """The run under way; of several, the one of the highest lane."""
        under_way = (lane.activity for lane in state.ranked if isinstance(lane.activity, Working))
        return next(map(self._working, under_way), None)

    def _on_the_way(self, state: State) -> Iterator[RunReport]:
        for lane in state.ranked:
            if isinstance(lane.activity, Working):
                yield self._working(lane.activity)
            for asked in lane.queue.waiting:
                run = requested_run(asked, lane.lane)
                yield _report(run, RunState.QUEUED, reason=_hindrance(lane), queued_at=asked.at)

    def _working(self, working: Working) -> RunReport:
        phase = working.phase if isinstance(working.phase, Executing) else None
        return _report(
            working.run,
            RunState.RUNNING if phase else RunState.SYNCING,
            queued_at=self._queued_at.get(working.run.id, working.since),
            tree=working.snapshot.id if working.snapshot else None,
            counts=_counts(phase.results.values() if phase else ()),
            total=(len(phase.promised) or None) if phase else None,
            is_stopping=working.stop is not None,
        )

    def _remember(self, report: RunReport) -> None:
        self._ended[report.id] = report
        while len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)


def _report(run: Run, state: RunState, **fields: Any) -> RunReport:
    selection = run.selection
    selected = len(selection.tests) if isinstance(selection, Only) else None
    because = "" if selection.because == UNDECIDED else selection.because
    return RunReport(run.id, run.lane, run.trigger, state, selected=selected, because=because, **fields)


def _finished(fact: RunFinished, queued_at: float) -> RunReport:
    last = fact.finished
    return _report(
        last.run,
        last.state,
        reason=last.reason,
        queued_at=queued_at,
        ended_at=last.ended_at,
        tree=fact.tree,
        counts=_counts(last.results.values()),
        total=len(last.results),
        successor=last.successor,
    )


def _withdrawn(fact: RunWithdrawn, queued_at: float, at: float) -> RunReport:
    state, reason = RunState.CANCELLED, NOTHING_NEW
    return _report(fact.run, state, reason=reason, queued_at=queued_at, ended_at=at, tree=fact.tree, is_needless=True)


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
    return None if seconds is None else timestamp(seconds)


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
