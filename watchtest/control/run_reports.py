"""Reports on runs: of the watcher's own state and the latest that ended, and of older ones from the history."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watchtest.core import transitions
from watchtest.core.model import Lane, Only, Outcome, Provisional, Result, Run, RunState, Trigger
from watchtest.core.state import Broken, Executing, LaneState, State, Working
from watchtest.core.text import optional_timestamp
from watchtest.history.queries.run_queries import PastRun, RunFilter, find_run, recent_runs, results_of
from watchtest.history.store.database_file import history_exists, open_for_reading
from watchtest.views.status.status_document import provisional_document

if TYPE_CHECKING:  # a watcher that receives no requests does not load pydantic's models
    from watchtest.control.api.request_models import RunsQuery

ENDED_LIMIT = 200
Position = tuple[float, str]
"""The place of a run in a list: when it was queued, and its id."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run in its current or final state."""

    id: str
    lane: Lane
    trigger: Trigger
    state: RunState
    reason: str = ""
    """Why it ended in this state, or what a queued run is waiting for."""
    queued_at: float | None = None
    ended_at: float | None = None
    tree: str | None = None
    counts: Mapping[Outcome, int] = field(default_factory=dict)
    total: int | None = None
    """How many tests will report a result; None if that is not known."""
    is_stopping: bool = False
    successor: str = ""
    """The id of the run that replaces it."""
    provisional: Provisional | None = None
    """Why its verdict is provisional."""
    selected: int | None = None
    """How many tests were selected; None for all, or if not decided yet."""
    because: str = ""
    is_withdrawn: bool = False
    """Nothing had changed, so nothing ran. A client that knows its id can still ask how it ended."""

    @property
    def has_ended(self) -> bool:
        return self.state.is_final

    @property
    def position(self) -> Position:
        return self.queued_at or 0.0, self.id

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
            "provisional": provisional_document(self.provisional),
            "queued_at": optional_timestamp(self.queued_at),
            "ended_at": optional_timestamp(self.ended_at),
            "tree": self.tree,
            "selected": self.selected,
            "because": self.because or None,
            "counts": {outcome.value: self.counts.get(outcome, 0) for outcome in Outcome},
            "progress": {"done": sum(self.counts.values()), "total": self.total},
        }


class RunReports:
    """The queued and current runs, and the latest that ended."""

    def __init__(self) -> None:
        self._ended: OrderedDict[str, RunReport] = OrderedDict()
        self._queued_at: dict[str, float] = {}
        """When the current runs that had to wait were queued."""

    def follow(self, facts: Iterable[transitions.Fact], after: State, at: float) -> tuple[RunReport, ...]:
        """Remember the runs that ended. Return reports on all runs that the facts are about, ended ones first."""
        ended: list[RunReport] = []
        progressed: set[str] = set()
        for fact in facts:
            match fact:
                case transitions.RunFinished(finished=finished):
                    ended.append(_finished(fact, self._queued_at.pop(finished.run.id, finished.started_at)))
                case transitions.RunWithdrawn(run=run, started_at=started_at, tree=tree):
                    times = {"queued_at": self._queued_at.pop(run.id, started_at), "ended_at": at}
                    reason = transitions.NOTHING_NEW
                    ended.append(_report(run, RunState.CANCELLED, reason=reason, tree=tree, is_withdrawn=True, **times))
                case transitions.RunDropped(run=run, queued_at=queued_at, reason=reason):
                    ended.append(_report(run, RunState.CANCELLED, reason=reason, queued_at=queued_at, ended_at=at))
                case transitions.RunStarted(run=run, queued_at=queued_at):
                    progressed.add(run.id)
                    if queued_at is not None:
                        self._queued_at[run.id] = queued_at
                case transitions.ResultsArrived() | transitions.LaneFact():
                    pass  # clients get results one by one
                case transitions.RunFact(run=run):
                    progressed.add(run.id)
        self._ended |= {report.id: report for report in ended}
        while len(self._ended) > ENDED_LIMIT:
            self._ended.popitem(last=False)
        if not progressed:
            return tuple(ended)
        return (*ended, *(report for report in self._active(after) if report.id in progressed))

    def find(self, state: State, run_id: str) -> RunReport | None:
        return next((report for report in self._active(state) if report.id == run_id), self._ended.get(run_id))

    def all(self, state: State) -> tuple[RunReport, ...]:
        """Return all reports, unordered, except those of withdrawn runs."""
        return (*self._active(state), *(report for report in self._ended.values() if not report.is_withdrawn))

    def current(self, state: State) -> RunReport | None:
        """Return the current run of the highest lane that has one."""
        current = (lane.activity for lane in state.ranked if isinstance(lane.activity, Working))
        return next(map(self._working, current), None)

    def _active(self, state: State) -> Iterator[RunReport]:
        for lane in state.ranked:
            if isinstance(lane.activity, Working):
                yield self._working(lane.activity)
            for queued in lane.queue.waiting:
                run = transitions.requested_run(queued, lane.lane)
                yield _report(run, RunState.QUEUED, reason=_wait_reason(lane), queued_at=queued.at)

    def _working(self, working: Working) -> RunReport:
        phase = working.phase if isinstance(working.phase, Executing) else None
        return _report(
            working.run,
            RunState.RUNNING if phase else RunState.SYNCING,
            queued_at=self._queued_at.get(working.run.id, working.since),
            tree=working.snapshot.id if working.snapshot else None,
            counts=Counter(result.outcome for result in phase.results.values()) if phase else {},
            total=(len(phase.promised) or None) if phase else None,
            is_stopping=working.stop is not None,
        )


def _report(run: Run, state: RunState, **fields: Any) -> RunReport:
    selection = run.selection
    selected = len(selection.tests) if isinstance(selection, Only) else None
    because = "" if selection.because == transitions.UNDECIDED else selection.because
    return RunReport(run.id, run.lane, run.trigger, state, selected=selected, because=because, **fields)


def _finished(fact: transitions.RunFinished, queued_at: float) -> RunReport:
    last = fact.finished
    return _report(
        last.run,
        last.state,
        reason=last.reason,
        queued_at=queued_at,
        ended_at=last.ended_at,
        tree=fact.tree,
        counts=Counter(result.outcome for result in last.results.values()),
        total=len(last.results),
        successor=last.successor,
        provisional=last.provisional,
    )


def _wait_reason(lane: LaneState) -> str:
    if lane.is_paused:
        return f"the {lane.lane.value} lane is paused; `watchtest resume` resumes it"
    if isinstance(lane.activity, Working):
        return f"run {lane.activity.run.id} is in progress"
    if isinstance(lane.activity, Broken):
        return lane.activity.problem.message
    return lane.waits_for


class PastRuns:
    """The past runs of one workspace; none if there is no history. The methods block."""

    def __init__(self, path: Path, workspace: Path) -> None:
        self._path = path
        self._workspace = str(workspace)

    def run(self, run_id: str) -> RunReport | None:
        if not history_exists(self._path):
            return None
        with open_for_reading(self._path) as connection:
            run = find_run(connection, run_id, self._workspace)
        return None if run is None else _past_report(run)

    def runs(self, query: RunsQuery, before: Position | None, limit: int) -> Sequence[RunReport]:
        """Return the latest runs older than `before`, newest first."""
        if not history_exists(self._path):
            return ()
        states = () if query.state is None else (query.state,)
        with open_for_reading(self._path) as connection:
            chosen = RunFilter(self._workspace, query.lane, states, before=before)
            runs = recent_runs(connection, chosen, limit=limit)
        return tuple(map(_past_report, runs))

    def results(self, run_id: str) -> Sequence[Result]:
        """Return all attempts, ordered by test: the history does not record the order of arrival."""
        if not history_exists(self._path):
            return ()
        with open_for_reading(self._path) as connection:
            run = find_run(connection, run_id, self._workspace)
            attempts = results_of(connection, run.number) if run else ()
        return tuple(attempt.result for attempt in attempts)


def _past_report(run: PastRun) -> RunReport:
    return RunReport(
        id=run.id,
        lane=run.lane,
        trigger=run.trigger,
        state=run.state,
        reason=run.reason,
        queued_at=run.queued_at,
        ended_at=run.ended_at,
        tree=run.tree,
        counts=run.counts,
        total=sum(run.counts.values()) if run.ended_at is not None else None,
        selected=run.selected,
        because=run.because,
        provisional=run.provisional,
    )
