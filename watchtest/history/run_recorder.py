"""Keeps the history of what the loop goes through. Writes in its own thread: a slow disk never holds up a run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event as Flag
from threading import Thread
from types import TracebackType
from typing import Self, assert_never

from watchtest.core.events import Event
from watchtest.core.model import RunState
from watchtest.core.state import State
from watchtest.errors import WatchtestError
from watchtest.history.facts import Add, Choose, Deed, Doubt, End, Execute, Queue, Report, Start, Take, Withdraw, deeds
from watchtest.history.queries.flaky_tests import flaky_now
from watchtest.history.store.database import is_passing
from watchtest.history.store.retention import Limits
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
        limits: Limits | None = None,
    ) -> None:
        self._is_watcher = is_watcher
        self._store = store
        self._workspace = workspace
        self._on_problem = on_problem
        self._limits = limits if limits is not None else Limits()
        self._ended = 0
        self._is_behind = False
        self._told: set[str] = set()
        self._deeds: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._waiting: deque[Callable[[], object]] = deque(maxlen=MOST_WAITING)
        """What could not be written yet, the oldest first: nothing overtakes it."""
        self.flaky: frozenset[str] | None = None
        """Tests that are known to pass and fail by chance; None: not known yet. Red stays red."""
        # A daemon: a locked database must not keep the watcher from leaving.
        self._thread = Thread(target=self._work, name="watchtest-history", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        is_beside = not self._is_watcher
        self._do(lambda: self._store.mend(self._workspace, time.time(), is_beside=is_beside))
        self._do(self._see_flaky)
        self._do(self._prune)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._deeds.put(None)
        self._thread.join(LEAVE_LIMIT_S)
        if self._thread.is_alive():
            self._on_problem(f"the history is busy: what it had not kept after {LEAVE_LIMIT_S:g} s is lost")
            return
        if self._waiting:
            self._on_problem("what the history could not keep until now is lost")
        self._store.close()

    def show(self, before: State, after: State, event: Event | None) -> None:
        has_results = False
        for deed in deeds(before, after, event, time.time()):
            self._do(lambda deed=deed: self._keep(deed))  # type: ignore[misc]
            has_results = has_results or isinstance(deed, Add)
        if has_results:
            self._wait_a_little()

    def _wait_a_little(self) -> None:
        """The views behind this one shall show what is kept; one that lags behind is not waited for again and again."""
        kept = Flag()
        self._do(kept.set)
        if not self._is_behind or self._deeds.qsize() + len(self._waiting) <= 1:
            self._is_behind = not kept.wait(PATIENCE_S)

    def _keep(self, deed: Deed) -> None:
        store = self._store
        match deed:
            case Queue(run, at, reason):
                store.begin(run, at, self._workspace, reason)
            case Start(run, at, reason):
                store.start(run, at, reason)
            case Take(run_id, at, snapshot, environment):
                store.snapshot_taken(run_id, snapshot, environment, at)
            case Choose(run, at):
                store.choose(run, at)
            case Execute(run_id, at):
                store.advance(run_id, RunState.RUNNING, at)
            case Report(run_id, at):
                store.reports(run_id, at)
            case Add(run_id, at, results, kind):
                store.add_results(run_id, results, at, kind)
            case Doubt(run_id, at, tests):
                store.by_chance(run_id, tests, at)
            case End(run_id, at, state, reason, raw_output):
                store.end(run_id, state, reason, at, raw_output)
                self._after_a_run()
            case Withdraw(run_id):
                store.withdraw(run_id)
            case _:
                assert_never(deed)

    def _after_a_run(self) -> None:
        self._do(self._see_flaky)
        self._ended += 1
        if self._ended % RUNS_BETWEEN_LOOKS == 0:
            self._do(self._prune)

    def _see_flaky(self) -> None:
        self.flaky = self._store.asked(lambda connection: flaky_now(connection, self._workspace, time.time()))

    def _prune(self) -> None:
        if self._store.prune(self._limits, time.time()):
            self._do(self._prune)  # behind whatever has come meanwhile

    def _do(self, action: Callable[[], object]) -> None:
        self._deeds.put(action)

    def _work(self) -> None:
        while (deed := self._deeds.get()) is not None:
            self._waiting.append(deed)
            self._catch_up()
        self._catch_up()

    def _catch_up(self) -> None:
        """In their order. What fails for a reason that may pass is tried again with the next one that comes."""
        while self._waiting:
            try:
                self._waiting[0]()
            except Exception as error:  # noqa: BLE001  told, whatever it is: the watcher goes on without a history
                self._tell(error)
                if is_passing(error.__cause__):
                    return
            self._waiting.popleft()

    def _tell(self, error: Exception) -> None:
        text = f"the history could not be kept: {error if isinstance(error, WatchtestError) else repr(error)}"
        if text not in self._told:
            self._told.add(text)
            self._on_problem(text)
