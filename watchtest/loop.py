"""Inbox, step, tasks, views: the only place that starts anything. Decides nothing; that is `step`'s."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

from watchtest.boxes.base import StopWish
from watchtest.core.events import (
    EVERYTHING,
    Broke,
    Changed,
    Effect,
    Ending,
    Event,
    Leave,
    LookAgain,
    QuitAsked,
    RunEnded,
    StartRun,
    StopRun,
    WakeAt,
    Woke,
)
from watchtest.core.model import Lane, Problem, Snapshot, Stop
from watchtest.core.state import Idle, State
from watchtest.core.step import leave, step
from watchtest.errors import WatchtestError
from watchtest.pipeline import Pipeline

log = logging.getLogger(__name__)
TICK_S = 0.25
LEAVE_LIMIT_S = 8.0
LOOK_AGAIN_S = 2.0

Watching = Callable[[], AsyncIterator[Event]]


@dataclass(frozen=True, slots=True)
class View:
    """Something that shows the state. Must be quick: it is called between events.

    `show(before, after, event)`: the event is None at the very end, when `after` is the last state of all.
    `tick(now)` is called a few times a second.
    """

    show: Callable[[State, State, Event | None], None]
    tick: Callable[[float], None] = lambda _now: None


@dataclass(slots=True)
class _Under:
    """A run under way."""

    task: asyncio.Task[None]
    wish: StopWish


class Loop:
    def __init__(
        self, state: State, pipelines: Mapping[Lane, Pipeline], watching: Sequence[Watching], views: Sequence[View]
    ) -> None:
        self.state = state
        self._pipelines = pipelines
        self._watching = watching
        self._views = views
        self._inbox: asyncio.Queue[Event] = asyncio.Queue()
        self._runs: dict[Lane, _Under] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._looks: dict[Lane, asyncio.Task[None]] = {}

    def post(self, event: Event) -> None:
        """Something happened. From the loop's own thread only."""
        self._inbox.put_nowait(event)

    def quit(self) -> None:
        for lane in self.state.lanes:
            self.post(QuitAsked(lane, time.time()))

    async def run(self) -> State:
        """Until it is told to leave, or a background task fails. The last state."""
        for pipeline in self._pipelines.values():
            pipeline.listen(self.post)
        background = [asyncio.create_task(self._watch(watching), name="watch") for watching in self._watching]
        background.append(asyncio.create_task(self._tick(), name="tick"))
        try:
            await self._react_to_events(background)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            for timer in self._timers:
                timer.cancel()
            for look in self._looks.values():
                look.cancel()
            await asyncio.gather(*self._looks.values(), return_exceptions=True)
            await self._end_runs()
            before, self.state = self.state, leave(self.state)
            self._show(before, None)
        return self.state

    async def _react_to_events(self, background: list[asyncio.Task[None]]) -> None:
        while True:
            next_event = asyncio.create_task(self._inbox.get())
            # A background task never ends by itself: one that is done has failed, and its exception is ours.
            done, _ = await asyncio.wait({next_event, *background}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {next_event}:
                next_event.cancel()
                task.result()
                raise AssertionError(f"the task {task.get_name()!r} ended without being told to")
            event = next_event.result()
            before = self.state
            self.state, effects = step(before, event)
            if isinstance(event, Changed) and event.lane in self._runs:
                self._runs[event.lane].wish.is_outdated = True
            self._show(before, event)
            for effect in effects:
                self._perform(effect)
            if any(isinstance(effect, Leave) for effect in effects):
                return

    def _show(self, before: State, event: Event | None) -> None:
        for view in self._views:
            view.show(before, self.state, event)

    # -- effects -----------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        match effect:
            case StartRun(run):
                wish = StopWish()
                task = asyncio.create_task(self._carry_out(effect, wish), name=f"run {run.id}")
                self._runs[run.lane] = _Under(task, wish)
            case StopRun(lane, _, stop):
                self._runs[lane].wish.ask(stop)
            case WakeAt(lane, at):
                self._wake_later(lane, at)
            case LookAgain(lane, snapshot):
                self._look_again_later(lane, snapshot)
            case Leave():
                pass  # the caller sees it and ends

    def _wake_later(self, lane: Lane, at: float) -> None:
        def wake() -> None:
            self._timers.discard(timer)
            self.post(Woke(lane, max(at, time.time())))

        timer = asyncio.get_running_loop().call_later(max(0.0, at - time.time()), wake)
        self._timers.add(timer)

    def _look_again_later(self, lane: Lane, snapshot: Snapshot) -> None:
        def look() -> None:
            self._timers.discard(timer)
            self._looks[lane] = asyncio.create_task(self._look_again(lane, snapshot), name=f"look again {lane}")

        timer = asyncio.get_running_loop().call_later(LOOK_AGAIN_S, look)
        self._timers.add(timer)

    async def _look_again(self, lane: Lane, snapshot: Snapshot) -> None:
        """Only while the lane rests on that very snapshot; what is found is a change like any other."""
        if not self._rests_on(lane, snapshot):
            return
        try:
            is_still = await self._pipelines[lane].is_still(snapshot)
        except WatchtestError as error:
            log.info("the second look at the %s lane failed: %s", lane, error)
            is_still = False  # the run that follows says what is wrong
        except Exception:
            log.exception("the second look at the %s lane failed by a bug", lane)
            return
        if not is_still and self._rests_on(lane, snapshot):
            log.warning("the %s lane's source changed without being told", lane)
            self.post(Changed(lane, time.time(), frozenset({EVERYTHING})))

    def _rests_on(self, lane: Lane, snapshot: Snapshot) -> bool:
        state = self.state.lanes[lane]
        return isinstance(state.activity, Idle) and not state.pending and state.knowledge.snapshot is snapshot

    async def _carry_out(self, start: StartRun, wish: StopWish) -> None:
        """The owner of a run: whatever becomes of it, the inbox hears of exactly one end."""
        run = start.run
        ending: Ending = Broke(Problem("bug", "the run was abandoned"), is_passing=False)
        try:
            ending = await self._pipelines[run.lane].carry_out(start, self.post, wish)
        except WatchtestError as error:
            log.warning("run %s broke: %s", run.id, error)
            ending = Broke(Problem(error.code, error.message, error.hint), error.is_passing, error.is_awaited)
        except Exception as error:
            log.exception("run %s failed by a bug", run.id)
            where = traceback.extract_tb(error.__traceback__)[-1]
            message = f"internal error: {type(error).__name__}: {error} ({where.name}, line {where.lineno})"
            ending = Broke(Problem("bug", message, "the log has the details; please report it"), is_passing=True)
        finally:
            self.post(RunEnded(run.lane, time.time(), run.id, ending))

    async def _end_runs(self) -> None:
        under = [run for run in self._runs.values() if not run.task.done()]
        for run in under:
            run.wish.ask(Stop.KILLED)
        tasks = [run.task for run in under]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=LEAVE_LIMIT_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for pipeline in self._pipelines.values():
            await pipeline.box.close()

    # -- background --------------------------------------------------------------------------------

    async def _watch(self, watching: Watching) -> None:
        async for event in watching():
            self.post(event)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = time.time()
            for view in self._views:
                view.tick(now)
