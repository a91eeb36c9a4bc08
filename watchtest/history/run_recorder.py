"""Keeps the history of what the loop goes through. Writes in its own thread: a slow disk never holds up a run."""

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

from watchtest.core.events import Event, Judged
from watchtest.core.model import RunState
from watchtest.core.state import State
from watchtest.core.transitions import (
    NOTHING_NEW,
    Fact,
    ResultsArrived,
    RunDropped,
    RunFinished,
    RunQueued,
    RunStarted,
    RunWithdrawn,
    TestsBegan,
    TestsPromised,
    TestsSelected,
    TreeTaken,
    transitions,
    unfinished,
)
from watchtest.errors import WatchtestError
from watchtest.history.queries.flaky_tests import flaky_now
from watchtest.history.store.columns import AttemptKind
from watchtest.history.store.database import is_transient
from watchtest.history.store.retention import RetentionLimits
from watchtest.history.store.store import Store

LEAVE_LIMIT_S = 5.0
PATIENCE_S = 0.02
"""So long a view that comes after this one waits until a result is kept: what is shown survives a kill."""
MOST_WAITING = 2000
"""So much is remembered while nothing can be written; of more than that the oldest is lost."""
RUNS_BETWEEN_LOOKS = 50
"""After so many ended runs it is looked whether old ones have to go."""


class Recorder:
    """`on_problem` hears, once per text, why something could not be kept; the watcher goes on.

    `is_watcher`: we hold the workspace's lock, so runs that are still open belong to a watcher that died. Otherwise we
    are a gate, and hold the lock of gates.
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
        self._told: set[str] = set()
        self._writes_due: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._waiting: deque[Callable[[], object]] = deque(maxlen=MOST_WAITING)
        """What could not be written yet, the oldest first: nothing overtakes it."""
        self.flaky: frozenset[str] | None = None
        """Tests that are known to pass and fail by chance; None: not known yet. Red stays red."""
        # A daemon: a locked database must not keep the watcher from leaving.
        self._thread = Thread(target=self._work, name="watchtest-history", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        is_gate = not self._is_watcher
        self._do(lambda: self._store.end_dead_runs(self._workspace, time.time(), is_gate=is_gate))
        self._do(self._see_flaky)
        self._do(self._prune)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._writes_due.put(None)
        self._thread.join(LEAVE_LIMIT_S)
        if self._thread.is_alive():
            self._on_problem(f"the history is busy: what it had not kept after {LEAVE_LIMIT_S:g} s is lost")
            return
        if self._waiting:
            self._on_problem("what the history could not keep until now is lost")
        self._store.close()

    def show(self, before: State, after: State, event: Event | None) -> None:
        if event is None:
            for run, reason in unfinished(before):
                self._do(partial(self._end, run.id, RunState.CANCELLED, reason, time.time()))
            return
        has_results = False
        for fact in transitions(before, after, event):
            for write in self._writes(fact, event.at):
                self._do(write)
            has_results = has_results or isinstance(fact, ResultsArrived)
        if has_results:
            self._wait_a_little()

    def _wait_a_little(self) -> None:
        """The views behind this one shall show what is kept; one that lags behind is not waited for again and again."""
        kept = Flag()
        self._do(kept.set)
        if not self._is_behind or self._writes_due.qsize() + len(self._waiting) <= 1:
            self._is_behind = not kept.wait(PATIENCE_S)

    def _writes(self, fact: Fact, at: float) -> Iterator[Callable[[], object]]:
        """Yield what to write of a fact, each part by itself: a part that fails may be tried again."""
        store = self._store
        match fact:
            case RunQueued(run, queued_at, reason):
                yield partial(store.begin, run, queued_at, self._workspace, reason)
            case RunStarted(run, started_at, _, waited_for):
                yield partial(store.start, run, started_at, waited_for)
            case TreeTaken(run, snapshot, environment):
                yield partial(store.set_snapshot, run.id, snapshot, environment, at)
            case TestsSelected(run):
                yield partial(store.set_selection, run, at)
            case TestsBegan(run):
                yield partial(store.advance, run.id, RunState.RUNNING, at)
            case TestsPromised(run):
                yield partial(store.runner_started, run.id, at)
            case ResultsArrived(run, results, is_check):
                kind = AttemptKind.CHECK if is_check else AttemptKind.WORD
                yield partial(store.add_results, run.id, results, at, kind)
            case RunFinished(finished, ending):
                run_id = finished.run.id
                if fact.crashed_in:
                    yield partial(store.add_results, run_id, fact.crashed_in, at, AttemptKind.BLAME)
                if isinstance(ending, Judged) and ending.execution.by_chance:
                    yield partial(store.add_chance_failures, run_id, ending.execution.by_chance, at)
                yield partial(self._end, run_id, finished.state, finished.reason, at, finished.raw_output)
            case RunWithdrawn(run):
                if run.is_forced:
                    yield partial(self._end, run.id, RunState.CANCELLED, NOTHING_NEW, at)
                else:
                    yield partial(store.withdraw, run.id)
            case RunDropped(run, _, reason):
                yield partial(self._end, run.id, RunState.CANCELLED, reason, at)
            case _:
                pass

    def _end(self, run_id: str, state: RunState, reason: str, at: float, raw_output: str = "") -> None:
        self._store.end(run_id, state, reason, at, raw_output)
        self._after_a_run()

    def _after_a_run(self) -> None:
        self._do(self._see_flaky)
        self._ended += 1
        if self._ended % RUNS_BETWEEN_LOOKS == 0:
            self._do(self._prune)

    def _see_flaky(self) -> None:
        self.flaky = self._store.query(lambda connection: flaky_now(connection, self._workspace, time.time()))

    def _prune(self) -> None:
        if self._store.prune(self._limits, time.time()):
            self._do(self._prune)  # behind whatever has come meanwhile

    def _do(self, action: Callable[[], object]) -> None:
        self._writes_due.put(action)

    def _work(self) -> None:
        while (write := self._writes_due.get()) is not None:
            self._waiting.append(write)
            self._catch_up()
        self._catch_up()

    def _catch_up(self) -> None:
        """In their order. What fails for a reason that may pass is tried again with the next one that comes."""
        while self._waiting:
            try:
                self._waiting[0]()
            except Exception as error:  # noqa: BLE001  told, whatever it is: the watcher goes on without a history
                self._tell(error)
                if is_transient(error.__cause__):
                    return
            self._waiting.popleft()

    def _tell(self, error: Exception) -> None:
        text = f"the history could not be kept: {error if isinstance(error, WatchtestError) else repr(error)}"
        if text not in self._told:
            self._told.add(text)
            self._on_problem(text)
