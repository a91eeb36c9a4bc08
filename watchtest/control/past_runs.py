"""Runs that only the history remembers, as reports for the API. Reads; writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from watchtest.control.run_reports import Position, RunReport
from watchtest.core.model import Result
from watchtest.history.queries.run_queries import PastRun, RunFilter, find_run, recent_runs, results_of
from watchtest.history.store.database_file import history_exists, open_for_reading

if TYPE_CHECKING:
    from watchtest.control.api.request_models import RunsQuery


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
        return None if run is None else _report(run)

    def runs(self, query: RunsQuery, before: Position | None, limit: int) -> Sequence[RunReport]:
        """Return the latest runs older than `before`, newest first."""
        if not history_exists(self._path):
            return ()
        states = () if query.state is None else (query.state,)
        with open_for_reading(self._path) as connection:
            chosen = RunFilter(self._workspace, query.lane, states, before=before)
            runs = recent_runs(connection, chosen, limit=limit)
        return tuple(map(_report, runs))

    def results(self, run_id: str) -> Sequence[Result]:
        """Return all attempts, ordered by test: the history does not record the order of arrival."""
        if not history_exists(self._path):
            return ()
        with open_for_reading(self._path) as connection:
            run = find_run(connection, run_id, self._workspace)
            attempts = results_of(connection, run.number) if run else ()
        return tuple(attempt.result for attempt in attempts)


def _report(run: PastRun) -> RunReport:
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
    )
