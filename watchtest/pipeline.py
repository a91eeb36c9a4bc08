"""One run, top to bottom: ensure the box, take the snapshot, sync, set up, execute. Decides nothing about when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from watchtest.boxes.base import Job, Limits, PytestWish, StopWish
from watchtest.boxes.box import Box
from watchtest.boxes.environment import Environment, plan
from watchtest.boxes.session import Session
from watchtest.core.events import (
    EVERYTHING,
    BoxSeen,
    Collected,
    Ending,
    Event,
    Halted,
    Judged,
    Noted,
    SnapshotTaken,
    TestsEnded,
    Unchanged,
)
from watchtest.core.model import Entry, Execution, Lane, Only, Result, Run, Snapshot, Stop
from watchtest.errors import RunnerError, SourceMoved, SourceShrank
from watchtest.runners.pytest import NO_PYTEST, PytestReports

SYNC_TRIES = 5
SHRINK_FROM = 20
"""Below so many paths a box is filled again before anybody could answer."""
BATCH_S = 0.05
"""Results are handed on in batches: a state a test would cost more than the test."""

Post = Callable[[Event], None]


class Source(Protocol):
    """The tree a lane tests. Blocking; called from one thread at a time."""

    def snapshot(self, hint: frozenset[str]) -> Snapshot:
        """The tree now. `hint` holds every path that may have changed since the last snapshot, or EVERYTHING."""

    def read(self, path: str, expect: Entry) -> bytes:
        """The content of that very entry; SourceMoved if it is no longer there."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The parts of one lane."""

    lane: Lane
    source: Source
    box: Box
    environment: Environment
    setup: tuple[str, ...] | str
    runner_args: tuple[str, ...]
    limits: Limits
    may_shrink: Callable[[], bool]
    """Whether a sync may delete more than half of the box; asked only when one would."""

    async def carry_out(
        self, run: Run, paths: frozenset[str], known: Snapshot | None, post: Post, wish: StopWish
    ) -> Ending:
        """The whole of a run. Raises WatchtestError when the tool, not the code, fails."""

        def note(text: str) -> None:
            loop.call_soon_threadsafe(post, Noted(self.lane, time.time(), text))

        loop = asyncio.get_running_loop()
        session, info = await self.box.ensure(note)
        post(BoxSeen(self.lane, time.time(), info))
        if wish.stop:
            return Halted(wish.stop)
        session, snapshot, generation = await self._sync(session, paths)
        if known is not None and not run.is_forced and snapshot.entries == known.entries:
            return Unchanged(snapshot)
        post(SnapshotTaken(self.lane, time.time(), run.id, snapshot))
        for left_out in snapshot.left_out[:10]:
            note(f"left out: {left_out.path} ({left_out.reason})")
        setup = await asyncio.to_thread(plan, self.setup, snapshot, self.source.read)
        python = await self.environment.prepare(session, setup, note, wish)
        if python is None or wish.stop:
            return Halted(wish.stop or Stop.CANCELLED)
        execution = await self._execute(session, run, python, generation, post, wish)
        if execution.stopped in (Stop.CANCELLED, Stop.KILLED):
            return Halted(wish.stop or execution.stopped)
        return Judged(snapshot, execution)

    async def _sync(self, session: Session, paths: frozenset[str]) -> tuple[Session, Snapshot, int]:
        """The box at exactly one snapshot. Files that change meanwhile mean another snapshot, not a mixture."""
        for _ in range(SYNC_TRIES):
            snapshot = await self._look(session, paths)
            self._guard(session.path_count, snapshot)
            try:
                generation, _ = await session.sync(snapshot, self.source.read)
            except SourceMoved:
                # Nobody may have told yet what it was that changed.
                paths = frozenset({EVERYTHING})
                session, _ = await self.box.ensure(lambda _text: None)
                continue
            return session, snapshot, generation
        raise SourceMoved(
            f"files kept changing while they were synced ({SYNC_TRIES} times in a row)",
            hint="what writes into the workspace all the time belongs into .gitignore or watch.ignore",
        )

    async def _look(self, session: Session, paths: frozenset[str]) -> Snapshot:
        """At both ends at once: what is there now, and what became of the tree in the box."""
        taking = asyncio.to_thread(self.source.snapshot, paths)
        snapshot, refreshed = await asyncio.gather(taking, session.refresh(), return_exceptions=True)
        for outcome in (snapshot, refreshed):
            if isinstance(outcome, BaseException):
                raise outcome
        assert isinstance(snapshot, Snapshot)
        return snapshot

    def _guard(self, in_box: int, snapshot: Snapshot) -> None:
        """An unmounted disk looks like a project without files; emptying the box for it helps nobody."""
        now = len(snapshot.entries)
        if in_box < SHRINK_FROM or 2 * now >= in_box or self.may_shrink():
            return
        raise SourceShrank(
            f"the source of the {self.lane.value} lane has {now} paths, its box {in_box}: most would be deleted",
            hint="if that is right: `watchtest sync --accept` (or watch.shrink_guard = false)",
        )

    async def is_still(self, snapshot: Snapshot) -> bool:
        """Whether the source is what it was, looked at as a whole: a second opinion on what the watch has told."""
        now = await asyncio.to_thread(self.source.snapshot, frozenset({EVERYTHING}))
        return now.entries == snapshot.entries

    async def _execute(
        self, session: Session, run: Run, python: str, generation: int, post: Post, wish: StopWish
    ) -> Execution:
        reports = PytestReports()
        tests = run.selection.tests if isinstance(run.selection, Only) else None
        job = Job(
            PytestWish(python, self.runner_args, tests),
            self.limits,
            self.environment.variables,
            self.environment.path_first,
            requires=generation,
        )
        post(Collected(self.lane, time.time(), run.id, frozenset()))
        with _batches(run, post) as batch:

            def take(rows: list[dict[str, object]]) -> None:
                promised, results = reports.take(rows)
                if promised:
                    post(Collected(self.lane, time.time(), run.id, promised))
                batch.add(results)

            end = await session.run(job, take, lambda _text: None, wish.jobs)
        if end.exit_code == NO_PYTEST and not reports.promised:
            raise RunnerError(
                f"pytest is not installed in the box ({python})",
                hint="`watchtest exec -- pip install pytest`, or add that command to box.setup",
            )
        return reports.execution(
            exit_code=end.exit_code,
            stopped=end.stopped,
            reason=end.reason,
            output=end.output,
            stacks=end.stacks,
            duration_s=end.duration_s,
        )


class _Batch:
    """Results on their way to the inbox, held back for at most BATCH_S."""

    def __init__(self, run: Run, post: Post) -> None:
        self._run = run
        self._post = post
        self._waiting: list[Result] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, results: tuple[Result, ...]) -> None:
        self._waiting += results
        if any(result.outcome.is_red for result in results):
            self.flush()  # red is shown as soon as it is seen
        elif self._waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(BATCH_S, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            results, self._waiting = tuple(self._waiting), []
            self._post(TestsEnded(self._run.lane, time.time(), self._run.id, results))


@contextmanager
def _batches(run: Run, post: Post) -> Iterator[_Batch]:
    batch = _Batch(run, post)
    try:
        yield batch
    finally:
        batch.flush()
