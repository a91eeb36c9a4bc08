"""Runs that only the history remembers, as the control API tells of them. Asks; writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from watchtest.control.gateway import Edge
from watchtest.control.run_reports import RunReport
from watchtest.core.model import Result
from watchtest.history.queries.run_queries import PastRun, find_run, recent_runs, results_of
from watchtest.history.store.database import Connection
from watchtest.history.store.database_file import history_exists, open_for_reading

if TYPE_CHECKING:
    from watchtest.control.api.models import RunsQuery


class PastRuns:
    """Of one workspace. Where there is no history, there was nothing."""

    def __init__(self, path: Path, workspace: Path) -> None:
        self._path = path
        self._workspace = str(workspace)

    def run(self, run_id: str) -> RunReport | None:
        with self._reading() as connection:
            run = find_run(connection, run_id, self._workspace) if connection else None
        return None if run is None else _report(run)

    def runs(self, query: RunsQuery, before: Edge | None, limit: int) -> Sequence[RunReport]:
        states = () if query.state is None else (query.state,)
        with self._reading() as connection:
            if connection is None:
                return ()
            found = recent_runs(
                connection, limit=limit, workspace=self._workspace, lane=query.lane, states=states, before=before
            )
        return tuple(map(_report, found))

    def results(self, run_id: str) -> Sequence[Result]:
        """All attempts, in the order of their names: the order in which they came is not kept."""
        with self._reading() as connection:
            run = find_run(connection, run_id, self._workspace) if connection else None
            found = results_of(connection, run.number) if connection and run else ()
        return tuple(past.result for past in found)

    @contextmanager
    def _reading(self) -> Iterator[Connection | None]:
        if not history_exists(self._path):
            yield None
            return
        with open_for_reading(self._path) as connection:
            yield connection


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
