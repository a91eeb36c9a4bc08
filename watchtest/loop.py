"""Inbox, step, tasks, views: the only place that starts anything. Decides nothing; that is `step`'s.

Whatever fails here is heard of. A run that fails by a bug is broken; a look at the source is said and done without; a
view or a watch that fails ends the watcher, after every view has seen the end.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol

from watchtest.boxes.protocols import StopSignal
from watchtest.core.events import (
    EVERYTHING,
    CompareSource,
    Effect,
    Ending,
    Event,
    Judged,
    Leave,
    NoteAdded,
    Post,
    QuitRequested,
    RecheckSource,
    RunEnded,
    RunRequested,
    SetTimer,
    SourceChanged,
    SourceCompared,
    StartRun,
    StopRun,
    TimerFired,
    ToolFailure,
)
from watchtest.core.model import Lane, Problem, Snapshot, StopReason
from watchtest.core.state import Idle, State, Working
from watchtest.core.step import leave, step
from watchtest.errors import WatchtestError
from watchtest.logs.writer import create_logged_task

log = logging.getLogger(__name__)
TICK_S = 0.25
REST_TICK_S = 1.0
"""While no lane is at work and nothing happens: each tick costs more than all that is done in it."""
LEAVE_LIMIT_S = 8.0
PEEK_LIMIT_S = 2.0
LOOK_AGAIN_S = 2.0

EventStream = Callable[[], AsyncIterator[Event]]


class Closable(Protocol):
    async def close(self) -> None: ...


class LaneRunner(Protocol):
    """Carries out the runs of one lane, and looks at its source for the loop."""

    @property
    def box(self) -> Closable: ...

    def listen(self, post: Post) -> None:
        """From now on tell of what happens between runs."""

    async def execute(self, start: StartRun, post: Post, wish: StopSignal) -> Ending:
        """The whole of a run; raises WatchtestError when the tool, not the code, fails."""

    async def is_still(self, snapshot: Snapshot) -> bool:
        """Whether the whole source is what it was."""

    async def changed_since(self, snapshot: Snapshot, paths: frozenset[str]) -> frozenset[str]:
        """Which of these paths (EVERYTHING: which at all) now differ from that snapshot, by content or mode."""


@dataclass(frozen=True, slots=True)
class View:
    """Something that shows the state. Must be quick: it is called between events.

    `show(before, after, event)`: the event is None at the very end, when `after` is the last state of all.
    `tick(now)` is called a few times a second.
    """

    show: Callable[[State, State, Event | None], None]
    tick: Callable[[float], None] = lambda _now: None


@dataclass(slots=True)
class _ActiveRun:
    """A run under way."""

    task: asyncio.Task[None]
    wish: StopSignal


class Loop:
    def __init__(
        self,
        state: State,
        pipelines: Mapping[Lane, LaneRunner],
        watching: Sequence[EventStream],
        views: Sequence[View],
        *,
        look_again_s: float = LOOK_AGAIN_S,
    ) -> None:
        self.state = state
        self._pipelines = pipelines
        self._watching = watching
        self._views = views
        self._look_again_s = look_again_s
        self._inbox: asyncio.Queue[Event] = asyncio.Queue()
        self._runs: dict[Lane, _ActiveRun] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._looks: dict[Lane, asyncio.Task[None]] = {}
        self._peeks: dict[Lane, set[asyncio.Task[None]]] = {lane: set() for lane in state.lanes}
        self._stirred = asyncio.Event()

    def post(self, event: Event) -> None:
        """Something happened. From the loop's own thread only."""
        self._inbox.put_nowait(event)

    def quit(self) -> None:
        for lane in self.state.lanes:
            self.post(QuitRequested(lane, time.time()))

    async def run(self) -> State:
        """Until it is told to leave, or a background task fails. The last state."""
        for pipeline in self._pipelines.values():
            pipeline.listen(self.post)
        background = [asyncio.create_task(self._watch(watching), name="watch") for watching in self._watching]
        background.append(asyncio.create_task(self._tick(), name="tick"))
        with self._strays_are_said():
            try:
                await self._react_to_events(background)
            finally:
                for timer in self._timers:
                    timer.cancel()
                aside = [*background, *self._looks.values(), *chain.from_iterable(self._peeks.values())]
                for task in aside:
                    task.cancel()
                await asyncio.gather(*aside, return_exceptions=True)
                failures = [*await self._end_runs(), *self._show_the_end()]
        for failure in failures:  # logged already; here only where nothing worse is on its way
            raise failure
        return self.state

    def _show_the_end(self) -> list[Exception]:
        """To every view, whatever another one does: the history must not be left with open runs."""
        self.state = replace(self.state, is_leaving=True)
        failures: list[Exception] = []
        while not self._inbox.empty():
            event = self._inbox.get_nowait()
            if isinstance(event, RunRequested):  # accepted by nobody, but somebody may wait for its end
                before = self.state
                self.state, _ = step(before, event)
                failures += self._shown(before, event)
        before, self.state = self.state, leave(self.state)
        failures += self._shown(before, None)
        for failure in failures:
            log.error("a view failed at the end", exc_info=failure)
        return failures

    @contextmanager
    def _strays_are_said(self) -> Iterator[None]:
        """An exception that no owner saw: in a callback, or in a task that somebody dropped."""

        def stray(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            error = context.get("exception")
            log.error("in the background: %s", context.get("message"), exc_info=error)
            if isinstance(error, Exception):  # a dropped task may be found by any thread
                running.call_soon_threadsafe(self._say_bug, self.state.top.lane, "something in the background", error)

        running = asyncio.get_running_loop()
        before = running.get_exception_handler()
        running.set_exception_handler(stray)
        try:
            yield
        finally:
            running.set_exception_handler(before)

    async def _react_to_events(self, background: list[asyncio.Task[None]]) -> None:
        while True:
            next_event = asyncio.create_task(self._inbox.get())
            # A background task never ends by itself: one that is done has failed, and its exception is ours.
            done, _ = await asyncio.wait({next_event, *background}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {next_event}:
                next_event.cancel()
                if not task.cancelled() and (error := task.exception()) is not None:
                    log.error("the task %r failed", task.get_name(), exc_info=error, extra={"task": task.get_name()})
                task.result()
                raise AssertionError(f"the task {task.get_name()!r} ended without being told to")
            event = next_event.result()
            before = self.state
            self.state, effects = step(before, event)
            self._show(before, event)
            self._stirred.set()
            for effect in effects:
                self._perform(effect)
            if any(isinstance(effect, Leave) for effect in effects):
                return

    def _show(self, before: State, event: Event) -> None:
        for failure in self._shown(before, event):
            raise failure

    def _shown(self, before: State, event: Event | None) -> list[Exception]:
        """What the views raised, once each has had its turn: the one that fails must not blind the others."""
        failures = []
        for view in self._views:
            try:
                view.show(before, self.state, event)
            except Exception as error:  # noqa: BLE001  the caller raises it
                failures.append(error)
        return failures

    def _say_bug(self, lane: Lane, what: str, error: Exception) -> None:
        text = f"{what} failed by a bug: {_told(error)}; the log has the details"
        self.post(NoteAdded(lane, time.time(), text, is_kept=True))

    # -- effects -----------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        match effect:
            case StartRun(run):
                wish = StopSignal()
                task = create_logged_task(self._execute(effect, wish), run.lane.value, run.id, name=f"run {run.id}")
                self._runs[run.lane] = _ActiveRun(task, wish)
            case StopRun(lane, _, stop):
                self._runs[lane].wish.set(stop)
            case SetTimer(lane, at):
                self._wake_later(lane, at)
            case RecheckSource(lane, snapshot):
                self._look_again_later(lane, snapshot)
            case CompareSource(lane, run_id):
                peek = create_logged_task(self._peek(effect), lane.value, run_id, name=f"peek {lane} for run {run_id}")
                self._peeks[lane].add(peek)
                peek.add_done_callback(self._peeks[lane].discard)
            case Leave():
                pass  # the caller sees it and ends

    def _wake_later(self, lane: Lane, at: float) -> None:
        def wake() -> None:
            self._timers.discard(timer)
            self.post(TimerFired(lane, max(at, time.time())))

        timer = asyncio.get_running_loop().call_later(max(0.0, at - time.time()), wake)
        self._timers.add(timer)

    def _look_again_later(self, lane: Lane, snapshot: Snapshot) -> None:
        def look() -> None:
            self._timers.discard(timer)
            look_again = self._look_again(lane, snapshot)
            self._looks[lane] = create_logged_task(look_again, lane.value, "", name=f"look again {lane}")

        timer = asyncio.get_running_loop().call_later(self._look_again_s, look)
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
        except Exception as error:
            log.exception("the second look at the %s lane failed by a bug", lane)
            self._say_bug(lane, "the second look at the source", error)
            return
        if not is_still and self._rests_on(lane, snapshot):
            log.warning("the %s lane's source changed without being told", lane)
            self.post(SourceChanged(lane, time.time(), frozenset({EVERYTHING})))

    async def _peek(self, peek: CompareSource) -> None:
        """A look that fails ends no run: the change stays pending, and the run that follows says what is wrong."""
        try:
            paths = await self._pipelines[peek.lane].changed_since(peek.snapshot, peek.paths)
        except WatchtestError as error:
            log.info("could not see what changed during run %s: %s", peek.run, error)
            return
        except Exception as error:
            log.exception("the look at what changed during run %s failed by a bug", peek.run)
            self._say_bug(peek.lane, "the look at what changed", error)
            return
        self.post(SourceCompared(peek.lane, time.time(), peek.run, paths))

    def _rests_on(self, lane: Lane, snapshot: Snapshot) -> bool:
        state = self.state.lanes[lane]
        return isinstance(state.activity, Idle) and not state.pending and state.knowledge.snapshot is snapshot

    async def _execute(self, start: StartRun, wish: StopSignal) -> None:
        """The owner of a run: whatever becomes of it, the inbox hears of exactly one end."""
        run = start.run
        ending: Ending = ToolFailure(Problem("bug", "the run was abandoned"), is_transient=False)
        began = time.monotonic()
        try:
            ending = await self._pipelines[run.lane].execute(start, self.post, wish)
            if isinstance(ending, Judged):
                await self._hold_back(run.lane, began)
        except WatchtestError as error:
            log.warning("run %s broke: %s", run.id, error)
            ending = ToolFailure(
                Problem(error.code, error.message, error.hint), error.is_transient, error.retries_forever
            )
        except Exception as error:
            log.exception("run %s failed by a bug", run.id)
            problem = Problem("bug", f"internal error: {_told(error)}", "the log has the details; please report it")
            ending = ToolFailure(problem, is_transient=True)
        finally:
            self.post(RunEnded(run.lane, time.time(), run.id, ending))

    async def _hold_back(self, lane: Lane, began: float) -> None:
        """A verdict is not given in the middle of a save: what belongs to it is heard of, and looked at, before."""
        await asyncio.sleep(max(0.0, began + self.state.lanes[lane].settings.settle_s - time.monotonic()))
        if peeks := self._peeks.get(lane):
            await asyncio.wait(tuple(peeks), timeout=PEEK_LIMIT_S)

    async def _end_runs(self) -> list[Exception]:
        """Whatever a box says to its end, the others are closed, too."""
        under = [run for run in self._runs.values() if not run.task.done()]
        for run in under:
            run.wish.set(StopReason.KILLED)
        tasks = [run.task for run in under]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=LEAVE_LIMIT_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        failures: list[Exception] = []
        for lane, pipeline in self._pipelines.items():
            try:
                await pipeline.box.close()
            except Exception as error:
                log.exception("the box of the %s lane could not be closed", lane)
                failures.append(error)
        return failures

    # -- background --------------------------------------------------------------------------------

    async def _watch(self, watching: EventStream) -> None:
        async for event in watching():
            self.post(event)

    async def _tick(self) -> None:
        while True:
            await self._until_the_next_tick()
            now = time.time()
            for view in self._views:
                view.tick(now)

    async def _until_the_next_tick(self) -> None:
        is_at_work = any(isinstance(lane.activity, Working) for lane in self.state.lanes.values())
        if not is_at_work and not self._stirred.is_set():
            try:
                async with asyncio.timeout(REST_TICK_S):
                    await self._stirred.wait()
            except TimeoutError:
                return
        self._stirred.clear()
        await asyncio.sleep(TICK_S)


def _told(error: Exception) -> str:
    """`ValueError: bad (parse, line 7)`."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
