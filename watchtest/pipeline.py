"""One run, top to bottom: box, snapshot, sync, setup, services, tests. Decides nothing about when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from watchtest.boxes.base import Job, Limits, Note, PytestWish, Recipe, StopWish
from watchtest.boxes.box import Box
from watchtest.boxes.channel import FREE_ROOM
from watchtest.boxes.environment import Environment
from watchtest.boxes.recipe.recipe import RecipeWish, recipe_of
from watchtest.boxes.services import Services, Surroundings
from watchtest.boxes.session import Session
from watchtest.core.events import (
    EVERYTHING,
    BoxLost,
    BoxSeen,
    Collected,
    Ending,
    Event,
    Halted,
    Judged,
    Noted,
    ServicesSeen,
    SnapshotTaken,
    StartRun,
    TestsEnded,
    Unchanged,
)
from watchtest.core.model import (
    BoxInfo,
    Entry,
    Execution,
    Lane,
    Only,
    Problem,
    Result,
    Run,
    ServiceInfo,
    Snapshot,
    Stop,
)
from watchtest.errors import BY_ITSELF, DiskFull, RunnerError, SourceMoved, SourceShrank
from watchtest.runners.pytest import NO_PYTEST, PytestReports

SYNC_TRIES = 5
SHRINK_FROM = 20
"""Below so many paths a box is filled again before anybody could answer."""
LEFT_OUT_LINES = 10
BY_HAND_SHOWN = 5
BATCH_S = 0.05
"""Results are handed on in batches: a state a test would cost more than the test."""

Post = Callable[[Event], None]


class Source(Protocol):
    """The tree a lane tests. Blocking; called from one thread at a time."""

    def snapshot(self, hint: frozenset[str]) -> Snapshot:
        """The tree now. `hint` holds every path that may have changed since the last snapshot, or EVERYTHING."""

    def read(self, path: str, expect: Entry) -> bytes:
        """The content of that very entry; SourceMoved if it is no longer there."""


def environment_name(engine: str, image: str, origin: str, recipe: Recipe, settings: str) -> str:
    """By this word verdicts are remembered: the same tree may be green in one environment and red in another."""
    return f"{engine} {image} {origin.removeprefix('sha256:')[:12]} {recipe.key} {settings}"


@dataclass(frozen=True, slots=True)
class _Ready:
    """A box at the very snapshot it is to be tested with."""

    session: Session
    info: BoxInfo
    snapshot: Snapshot
    generation: int
    recipe: Recipe


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The parts of one lane."""

    lane: Lane
    source: Source
    box: Box
    environment: Environment
    services: Services
    wish: RecipeWish
    runner_args: tuple[str, ...]
    limits: Limits
    settings: str
    """A digest of the settings that a verdict depends on."""
    may_shrink: Callable[[], bool]
    """Whether a sync may delete more than half of the box; asked only when one would."""
    done_by_hand: Callable[[], tuple[str, ...]] = tuple
    """What the user had done in a box that is gone; asked when another was made."""
    said: set[str] = field(default_factory=set)
    """Paths that were left out, and said so: once is enough."""

    def listen(self, post: Post) -> None:
        """Hear of a box that is lost, and of services that change, while nobody uses them."""

        def lost(reason: str) -> None:
            problem = Problem("channel", f"lost the agent in the box: {reason}", BY_ITSELF)
            post(BoxLost(self.lane, time.time(), problem))

        def seen(services: tuple[ServiceInfo, ...]) -> None:
            # By the same way as notes, so that they keep their order.
            asyncio.get_running_loop().call_soon(post, ServicesSeen(self.lane, time.time(), services))

        self.box.on_lost = lost
        self.services.on_seen = seen

    async def carry_out(self, start: StartRun, post: Post, wish: StopWish) -> Ending:
        """The whole of a run. Raises WatchtestError when the tool, not the code, fails."""

        def note(text: str) -> None:
            loop.call_soon_threadsafe(post, Noted(self.lane, time.time(), text))

        def seen(info: BoxInfo) -> None:
            post(BoxSeen(self.lane, time.time(), info))

        run, known = start.run, start.known_snapshot
        loop = asyncio.get_running_loop()
        ready = await self._brought_to_the_source(start.paths, note, seen, wish)
        if ready is None or wish.stop:
            return Halted(wish.stop or Stop.CANCELLED)
        is_known = known is not None and ready.snapshot.entries == known.entries and ready.info.id == start.known_box
        if not is_known or run.is_forced:
            self._announce(run, ready, post, note)
        # Even with nothing to run: a box that was brought back has to be whole again.
        prepared = await self.environment.prepare(ready.session, ready.recipe, note, wish)
        if prepared is None or wish.stop:
            return Halted(wish.stop or Stop.CANCELLED)
        is_needless = is_known and not run.is_forced and not prepared.is_fresh
        if prepared.is_fresh:
            # Setup may have written into the tree: lock files, generated code.
            await ready.session.refresh()
            generation, _ = await ready.session.sync(ready.snapshot, self.source.read)
            ready = replace(ready, generation=generation)
        around = Surroundings(self.environment.variables, self.environment.path_first)
        await self.services.ensure(ready.session, ready.snapshot, around, note, wish, is_forced=run.is_forced)
        if wish.stop:
            return Halted(wish.stop)
        if is_needless:
            return Unchanged(ready.snapshot)
        if is_known and not run.is_forced:
            self._announce(run, ready, post, note)
        execution = await self._execute(ready.session, run, prepared.python, ready.generation, post, wish)
        if execution.stopped in (Stop.CANCELLED, Stop.KILLED):
            return Halted(wish.stop or execution.stopped)
        return Judged(ready.snapshot, execution, ready.info.id)

    def _announce(self, run: Run, ready: _Ready, post: Post, note: Note) -> None:
        """This is what the run is about."""
        hand = " by hand" if self.environment.is_touched() else ""
        environment = environment_name(
            ready.info.engine, ready.info.image, ready.info.origin, ready.recipe, self.settings
        )
        post(SnapshotTaken(self.lane, time.time(), run.id, ready.snapshot, environment + hand))
        self._say_what_is_left_out(ready.snapshot, note)

    async def prepare(self, note: Note, wish: StopWish) -> None:
        """All of it but the tests: the box there, at the source as it is now, and set up."""
        ready = await self._brought_to_the_source(frozenset({EVERYTHING}), note, lambda _info: None, wish)
        if ready is not None:
            self._say_what_is_left_out(ready.snapshot, note)
            await self.environment.prepare(ready.session, ready.recipe, note, wish)

    async def _brought_to_the_source(
        self, paths: frozenset[str], note: Note, seen: Callable[[BoxInfo], None], wish: StopWish
    ) -> _Ready | None:
        """The box at exactly one snapshot. Files that change meanwhile mean another snapshot, not a mixture."""
        for _ in range(SYNC_TRIES):
            try:
                ready = await self._brought_once(paths, note, seen, wish)
            except SourceMoved:
                # Nobody may have told yet what it was that changed.
                paths = frozenset({EVERYTHING})
                continue
            if ready is not None or wish.stop:
                return ready
        raise SourceMoved(
            f"files kept changing while they were synced ({SYNC_TRIES} times in a row)",
            hint="what writes into the workspace all the time belongs into .gitignore or watch.ignore",
        )

    async def _brought_once(
        self, paths: frozenset[str], note: Note, seen: Callable[[BoxInfo], None], wish: StopWish
    ) -> _Ready | None:
        """None: it was stopped, or the source asks for another box than the one there is."""
        recipe = self.box.recipe if self.box.is_open else None
        if recipe is None:
            # What the box is made of is in the source, too.
            recipe = await self._recipe(await asyncio.to_thread(self.source.snapshot, paths))
        session, info = await self.box.ensure(recipe, note)
        seen(info)
        self._say_what_is_lost(info, note)
        if wish.stop:
            return None
        snapshot = await self._look(session, paths)
        recipe, used = await self._recipe(snapshot), recipe
        if recipe.image != used.image:
            await self.box.disconnect()
            return None
        self._guard(session.path_count, snapshot)
        generation, _ = await session.sync(snapshot, self.source.read)
        return _Ready(session, info, snapshot, generation, recipe)

    async def _recipe(self, snapshot: Snapshot) -> Recipe:
        return await asyncio.to_thread(recipe_of, self.wish, snapshot, self.source.read)

    def _say_what_is_lost(self, info: BoxInfo, note: Note) -> None:
        lost = self.done_by_hand() if any(text.startswith("created") for text in info.notes) else ()
        if lost:
            what = "; ".join(lost[-BY_HAND_SHOWN:])
            note(f"a new box: what was done by hand in the old one is gone ({what}); `watchtest snapshot` keeps a box")

    def _say_what_is_left_out(self, snapshot: Snapshot, note: Note) -> None:
        fresh = [left_out for left_out in snapshot.left_out if left_out.path not in self.said]
        for left_out in fresh[:LEFT_OUT_LINES]:
            note(f"left out {left_out.path}: {left_out.reason}")
        if len(fresh) > LEFT_OUT_LINES:
            note(f"left out {len(fresh) - LEFT_OUT_LINES} more; `watchtest doctor` lists them")
        self.said.update(left_out.path for left_out in fresh)

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
        if end.full_disk and end.exit_code != 0:
            # Whatever is red now may be so for want of room; that is not the code's fault.
            raise DiskFull(f"no room is left in the box, in {end.full_disk}: the run proves nothing", hint=FREE_ROOM)
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
