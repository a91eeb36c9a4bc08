"""Record every step of the loop in the history. A thread does the writing, so a slow disk never delays a run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue
from threading import Event as Flag
from threading import Thread
from types import TracebackType
from typing import Self

from watchtest.core import transitions
from watchtest.core.events import Event, Judged
from watchtest.core.model import Provisional, RunState
from watchtest.core.state import State
from watchtest.errors import WatchtestError
from watchtest.history.queries.flaky_tests import flaky_now
from watchtest.history.store.columns import AttemptKind
from watchtest.history.store.database import is_transient
from watchtest.history.store.retention import RetentionLimits
from watchtest.history.store.store import Store

LEAVE_LIMIT_S = 5.0
PATIENCE_S = 0.02
"""How long the following views wait until a result is stored, so that whatever they show survives a kill."""
MOST_WAITING = 2000
"""How many writes are kept while nothing can be written; beyond that the oldest are lost."""
RUNS_BETWEEN_PRUNINGS = 50


class RunRecorder:
    """A view of the loop that writes to the history.

    `on_problem` is called once per text when something could not be stored; the watcher goes on. With `is_watcher` we
    hold the lock of the workspace, so unfinished runs belong to a dead watcher. Otherwise we hold the lock of gates.
    """

    def __init__(
        self,
        store: Store,
        workspace: str,
        on_problem: Callable[[str], None],
        *,
        is_watcher: bool = True,
        limits: RetentionLimits | None = None,
    ) -> None:
        self._is_watcher = is_watcher
        self._store = store
        self._workspace = workspace
        self._on_problem = on_problem
        self._limits = limits if limits is not None else RetentionLimits()
        self._ended = 0
        self._is_behind = False
        self._reported: set[str] = set()
        self._writes_due: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._waiting: deque[Callable[[], object]] = deque(maxlen=MOST_WAITING)
        """What could not be written yet, oldest first. The order is kept."""
        self.flaky: frozenset[str] | None = None
        """The tests that are known to be flaky; None until they have been queried."""
        # A daemon thread, because a locked database must not keep the watcher from exiting.
        self._thread = Thread(target=self._work, name="watchtest-history", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        is_gate = not self._is_watcher
        self._enqueue(lambda: self._store.end_dead_runs(self._workspace, time.time(), is_gate=is_gate))
        self._enqueue(self._find_flaky_tests)
        self._enqueue(self._prune)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._writes_due.put(None)
        self._thread.join(LEAVE_LIMIT_S)
        if self._thread.is_alive():
            self._on_problem(f"the history is busy: everything not written after {LEAVE_LIMIT_S:g} s is lost")
            return
        if self._waiting:
            self._on_problem("the latest results could not be written to the history and are lost")
        self._store.close()

    def show(self, before: State, after: State, event: Event | None) -> None:
        if event is None:
            for run, reason in transitions.unfinished(before):
                self._enqueue(partial(self._end, run.id, RunState.CANCELLED, reason, time.time()))
            return
        has_results = False
        for fact in transitions.facts_of(before, after, event):
            for write in self._writes(fact, event.at):
                self._enqueue(write)
            has_results = has_results or isinstance(fact, transitions.ResultsArrived)
        if has_results:
            self._wait_briefly()

    def _wait_briefly(self) -> None:
        """Wait until the results are stored, before the following views show them. Do not wait again while behind."""
        is_stored = Flag()
        self._enqueue(is_stored.set)
        if not self._is_behind or self._writes_due.qsize() + len(self._waiting) <= 1:
            self._is_behind = not is_stored.wait(PATIENCE_S)

    def _writes(self, fact: transitions.Fact, at: float) -> Iterator[Callable[[], object]]:
        """Yield the writes for a fact, each of which may be retried on its own."""
        store = self._store
        match fact:
            case transitions.RunQueued(run, queued_at, reason):
                yield partial(store.begin, run, queued_at, self._workspace, reason)
            case transitions.RunStarted(run, started_at, _, waited_for):
                yield partial(store.start, run, started_at, waited_for)
            case transitions.TreeTaken(run, snapshot, environment):
                yield partial(store.set_snapshot, run.id, snapshot, environment, at)
            case transitions.TestsSelected(run):
                yield partial(store.set_selection, run, at)
            case transitions.TestsBegan(run):
                yield partial(store.advance, run.id, RunState.RUNNING, at)
            case transitions.TestsPromised(run):
                yield partial(store.runner_started, run.id, at)
            case transitions.ResultsArrived(run, results, is_check):
                kind = AttemptKind.CHECK if is_check else AttemptKind.WORD
                yield partial(store.add_results, run.id, results, at, kind)
            case transitions.RunFinished(finished=finished, ending=ending):
                run_id = finished.run.id
                if fact.crashed_in:
                    yield partial(store.add_results, run_id, fact.crashed_in, at, AttemptKind.BLAME)
                if isinstance(ending, Judged) and ending.execution.by_chance:
                    yield partial(store.add_chance_failures, run_id, ending.execution.by_chance, at)
                outcome = (finished.state, finished.reason, at, finished.raw_output, finished.provisional)
                yield partial(self._end, run_id, *outcome)
            case transitions.RunWithdrawn(run):
                if run.is_forced:
                    yield partial(self._end, run.id, RunState.CANCELLED, transitions.NOTHING_NEW, at)
                else:
                    yield partial(store.withdraw, run.id)
            case transitions.RunDropped(run, _, reason):
                yield partial(self._end, run.id, RunState.CANCELLED, reason, at)
            case _:
                pass

    def _end(
        self,
        run_id: str,
        state: RunState,
        reason: str,
        at: float,
        raw_output: str = "",
        provisional: Provisional | None = None,
    ) -> None:
        self._store.end(run_id, state, reason, at, raw_output, provisional)
        self._enqueue(self._find_flaky_tests)
        self._ended += 1
        if self._ended % RUNS_BETWEEN_PRUNINGS == 0:
            self._enqueue(self._prune)

    def _find_flaky_tests(self) -> None:
        self.flaky = self._store.query(lambda connection: flaky_now(connection, self._workspace, time.time()))

    def _prune(self) -> None:
        if self._store.prune(self._limits, time.time()):
            self._enqueue(self._prune)  # after the writes that have arrived in the meantime

    def _enqueue(self, write: Callable[[], object]) -> None:
        self._writes_due.put(write)

    def _work(self) -> None:
        while (write := self._writes_due.get()) is not None:
            self._waiting.append(write)
            self._catch_up()
        self._catch_up()

    def _catch_up(self) -> None:
        """Write in order. After a transient error, try again when the next write arrives."""
        while self._waiting:
            try:
                self._waiting[0]()
            except Exception as error:  # noqa: BLE001  any error is reported; the watcher goes on without a history
                self._report(error)
                if is_transient(error.__cause__):
                    return
            self._waiting.popleft()

    def _report(self, error: Exception) -> None:
        text = f"the history could not be written: {error if isinstance(error, WatchtestError) else repr(error)}"
        if text not in self._reported:
            self._reported.add(text)
            self._on_problem(text)
