"""Keeps the history of what the loop goes through. Writes in its own thread: a slow disk never holds up a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Self

from watchtest.core.events import Event, RunEnded, SnapshotTaken, TestsEnded, Unchanged
from watchtest.core.model import RunState
from watchtest.core.state import LaneState, State, Working
from watchtest.errors import WatchtestError
from watchtest.history.store import Store

LEAVE_LIMIT_S = 5.0


class Recorder:
    """`on_problem` hears, once per text, why something could not be kept; the watcher goes on.

    `is_watcher`: we hold the workspace's lock, so runs that are still open belong to a watcher that died.
    """

    def __init__(
        self, store: Store, workspace: str, on_problem: Callable[[str], None], *, is_watcher: bool = True
    ) -> None:
        self._is_watcher = is_watcher
        self._store = store
        self._workspace = workspace
        self._on_problem = on_problem
        self._told: set[str] = set()
        self._deeds: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        # A daemon: a locked database must not keep the watcher from leaving.
        self._thread = Thread(target=self._work, name="watchtest-history", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        if self._is_watcher:
            self._do(lambda: self._store.mend(self._workspace, time.time()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._deeds.put(None)
        self._thread.join(LEAVE_LIMIT_S)
        if self._thread.is_alive():
            self._on_problem(f"the history is busy: what it had not kept after {LEAVE_LIMIT_S:g} s is lost")
        else:
            self._store.close()

    def show(self, before: State, after: State, event: Event | None) -> None:
        if event is None:
            self._end_all(before)
            return
        self._keep(before.lanes[event.lane], after.lanes[event.lane], event)
        # An event of one lane may let another start.
        for now in after.ranked:
            if isinstance(now.activity, Working) and now.runs != before.lanes[now.lane].runs:
                self._begin(now.activity)

    def _begin(self, working: Working) -> None:
        self._do(lambda: self._store.begin(working.run, working.since, self._workspace))

    def _keep(self, was: LaneState, now: LaneState, event: Event) -> None:
        """Only of the run that is under way: what comes after its end is not its own any more."""
        if not isinstance(was.activity, Working):
            return
        run = was.activity.run.id
        match event:
            case SnapshotTaken(run=of, snapshot=snapshot, environment=environment, at=at) if of == run:
                self._do(lambda: self._store.snapshot_taken(run, snapshot, environment, at))
            case TestsEnded(run=of, results=results, at=at) if of == run:
                self._do(lambda: self._store.add_results(run, results, at))
            case RunEnded(run=of, ending=Unchanged()) if of == run:
                self._do(lambda: self._store.withdraw(run))
            case RunEnded(run=of, at=at) if of == run and now.last is not None:
                last = now.last
                self._do(lambda: self._store.end(run, last.state, last.reason, at, last.raw_output))

    def _end_all(self, state: State) -> None:
        """The watcher leaves: a run that is still under way has no end of its own."""
        for lane in state.lanes.values():
            if isinstance(lane.activity, Working):
                run, at = lane.activity.run.id, time.time()
                self._do(lambda run=run, at=at: self._store.end(run, RunState.CANCELLED, "the watcher left", at, ""))  # type: ignore[misc]

    def _do(self, action: Callable[[], object]) -> None:
        self._deeds.put(action)

    def _work(self) -> None:
        while (deed := self._deeds.get()) is not None:
            try:
                deed()
            except Exception as error:  # noqa: BLE001  told, whatever it is: the watcher goes on without a history
                self._tell(error)

    def _tell(self, error: Exception) -> None:
        text = f"the history could not be kept: {error if isinstance(error, WatchtestError) else repr(error)}"
        if text not in self._told:
            self._told.add(text)
            self._on_problem(text)
