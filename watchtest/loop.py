"""The event loop of the watcher: inbox, `step`, tasks, views. The only place that starts tasks; `step` decides.

No failure is silent. A run that fails because of a bug is broken; a failed check of the source is reported; a view or
an event stream that fails ends the watcher, after every view has seen the last state.
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
from typing import Any

from watchtest.boxes.protocols import StopSignal
from watchtest.core import events
from watchtest.core.model import Lane, Problem, Snapshot, StopReason
from watchtest.core.state import Idle, State, Working
from watchtest.core.step import leave, step
from watchtest.errors import WatchtestError
from watchtest.pipeline import Pipeline
from watchtest.watcher_log import create_logged_task

log = logging.getLogger(__name__)
TICK_S = 0.25
REST_TICK_S = 1.0
"""The interval while no lane is working and nothing happens, to save power."""
LEAVE_LIMIT_S = 8.0
COMPARE_LIMIT_S = 2.0
RECHECK_AFTER_S = 2.0

EventStream = Callable[[], AsyncIterator[events.Event]]


@dataclass(frozen=True, slots=True)
class View:
    """Something that shows the state or acts on it. It must be fast, because it is called between events.

    `show(before, after, event)`: the event is None when `after` is the last state. `tick(now)` is called up to four
    times per second.
    """

    show: Callable[[State, State, events.Event | None], None] = lambda _before, _after, _event: None
    tick: Callable[[float], None] = lambda _now: None


@dataclass(slots=True)
class _ActiveRun:
    """The task of an active run or build, and the signal that stops it."""

    task: asyncio.Task[None]
    signal: StopSignal


class Loop:
    def __init__(
        self,
        state: State,
        pipelines: Mapping[Lane, Pipeline],
        streams: Sequence[EventStream],
        views: Sequence[View],
        *,
        recheck_after_s: float = RECHECK_AFTER_S,
    ) -> None:
        self.state = state
        self._pipelines = pipelines
        self._streams = streams
        self._views = views
        self._recheck_after_s = recheck_after_s
        self._inbox: asyncio.Queue[events.Event] = asyncio.Queue()
        self._runs: dict[Lane, _ActiveRun] = {}
        self._builds: dict[Lane, _ActiveRun] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._rechecks: dict[Lane, asyncio.Task[None]] = {}
        self._comparisons: dict[Lane, set[asyncio.Task[None]]] = {lane: set() for lane in state.lanes}
        self._has_news = asyncio.Event()

    def post(self, event: events.Event) -> None:
        """Put an event into the inbox. To be called from the loop's own thread only."""
        self._inbox.put_nowait(event)

    def quit(self) -> None:
        for lane in self.state.lanes:
            self.post(events.QuitRequested(lane, time.time()))

    async def run(self) -> State:
        """Run until a `Leave` effect, or until a background task fails. Return the last state."""
        for pipeline in self._pipelines.values():
            pipeline.listen(self.post)
        background = [asyncio.create_task(self._watch(stream), name="watch") for stream in self._streams]
        background.append(asyncio.create_task(self._tick(), name="tick"))
        with self._reporting_stray_errors():
            try:
                await self._react_to_events(background)
            finally:
                for timer in self._timers:
                    timer.cancel()
                others = [*background, *self._rechecks.values(), *chain.from_iterable(self._comparisons.values())]
                for task in others:
                    task.cancel()
                await asyncio.gather(*others, return_exceptions=True)
                failures = [*await self._end_runs(), *self._show_the_end()]
        for failure in failures:  # logged already; raised only if no other exception is propagating
            raise failure
        return self.state

    def _show_the_end(self) -> list[Exception]:
        """Show the last state to every view, even if one fails: the history must not keep open runs."""
        self.state = replace(self.state, is_leaving=True)
        failures: list[Exception] = []
        while not self._inbox.empty():
            event = self._inbox.get_nowait()
            if isinstance(event, events.RunRequested):  # it is refused, and its client may be waiting for that
                before = self.state
                self.state, _ = step(before, event)
                failures += self._shown(before, event)
        before, self.state = self.state, leave(self.state)
        failures += self._shown(before, None)
        for failure in failures:
            log.error("a view failed at the end", exc_info=failure)
        return failures

    @contextmanager
    def _reporting_stray_errors(self) -> Iterator[None]:
        """Report exceptions that no caller sees: in callbacks, or in tasks without an owner."""

        def stray(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            error = context.get("exception")
            log.error("in the background: %s", context.get("message"), exc_info=error)
            if isinstance(error, Exception):  # the garbage collector may find a lost task in any thread
                running.call_soon_threadsafe(self._report_bug, self.state.top.lane, "a background task", error)

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
            # Background tasks never end by themselves: one that is done has failed, and its exception is raised here.
            done, _ = await asyncio.wait({next_event, *background}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {next_event}:
                next_event.cancel()
                if not task.cancelled() and (error := task.exception()) is not None:
                    log.error("the task %r failed", task.get_name(), exc_info=error, extra={"task": task.get_name()})
                task.result()
                raise AssertionError(f"the task {task.get_name()!r} ended unexpectedly")
            event = next_event.result()
            before = self.state
            self.state, effects = step(before, event)
            for failure in self._shown(before, event):
                raise failure
            self._has_news.set()
            for effect in effects:
                self._perform(effect)
            if any(isinstance(effect, events.Leave) for effect in effects):
                return

    def _shown(self, before: State, event: events.Event | None) -> list[Exception]:
        """Show the state to all views, even if one fails, and return their exceptions."""
        failures = []
        for view in self._views:
            try:
                view.show(before, self.state, event)
            except Exception as error:  # noqa: BLE001  the caller raises it
                failures.append(error)
        return failures

    def _report_bug(self, lane: Lane, what: str, error: Exception) -> None:
        text = f"{what} failed because of a bug: {_describe(error)}; the log has the details"
        self.post(events.NoteAdded(lane, time.time(), text, is_kept=True))

    # -- effects -----------------------------------------------------------------------------------

    def _perform(self, effect: events.Effect) -> None:
        match effect:
            case events.StartRun(run):
                signal = StopSignal()
                task = create_logged_task(self._execute(effect, signal), run.lane.value, run.id, name=f"run {run.id}")
                self._runs[run.lane] = _ActiveRun(task, signal)
            case events.StopRun(lane, _, stop):
                self._runs[lane].signal.set(stop)
            case events.SetTimer(lane, at):
                self._call_later(at - time.time(), lambda: self.post(events.TimerFired(lane, max(at, time.time()))))
            case events.RecheckSource(lane, snapshot):
                self._call_later(self._recheck_after_s, lambda: self._start_recheck(lane, snapshot))
            case events.CompareSource(lane, run_id):
                comparison = create_logged_task(
                    self._compare(effect), lane.value, run_id, name=f"compare {lane} for run {run_id}"
                )
                self._comparisons[lane].add(comparison)
                comparison.add_done_callback(self._comparisons[lane].discard)
            case events.BuildEnvironment(lane):
                earlier = self._builds.get(lane)
                if earlier is not None:
                    earlier.signal.set(StopReason.SUPERSEDED)
                signal = StopSignal()
                building = self._build(effect, signal, earlier)
                task = create_logged_task(building, lane.value, "", name=f"build for {lane}")
                self._builds[lane] = _ActiveRun(task, signal)
            case events.StopBuild(lane):
                self._builds[lane].signal.set(StopReason.SUPERSEDED)
            case events.Leave():
                pass  # the caller sees it and ends

    def _call_later(self, delay_s: float, action: Callable[[], None]) -> None:
        def call() -> None:
            self._timers.discard(timer)
            action()

        timer = asyncio.get_running_loop().call_later(max(0.0, delay_s), call)
        self._timers.add(timer)

    def _start_recheck(self, lane: Lane, snapshot: Snapshot) -> None:
        recheck = self._recheck(lane, snapshot)
        self._rechecks[lane] = create_logged_task(recheck, lane.value, "", name=f"recheck {lane}")

    async def _recheck(self, lane: Lane, snapshot: Snapshot) -> None:
        """Compare the whole source with the snapshot while the lane is idle; a difference counts as a change."""
        if not self._rests_on(lane, snapshot):
            return
        everything = frozenset({events.EVERYTHING})
        try:
            has_changed = bool(await self._pipelines[lane].changed_since(snapshot, everything))
        except WatchtestError as error:
            log.info("the recheck of the %s lane failed: %s", lane, error)
            has_changed = True  # the run that follows reports the problem
        except Exception as error:
            log.exception("the recheck of the %s lane failed because of a bug", lane)
            self._report_bug(lane, "the recheck of the source", error)
            return
        if has_changed and self._rests_on(lane, snapshot):
            log.warning("the source of the %s lane changed, but the watch did not report it", lane)
            self.post(events.SourceChanged(lane, time.time(), everything))

    async def _compare(self, request: events.CompareSource) -> None:
        """Compare changed paths with the snapshot of the active run. If that fails, the change just stays pending."""
        try:
            paths = await self._pipelines[request.lane].changed_since(request.snapshot, request.paths)
        except WatchtestError as error:
            log.info("the changes during run %s could not be compared: %s", request.run, error)
            return
        except Exception as error:
            log.exception("the comparison of changes during run %s failed because of a bug", request.run)
            self._report_bug(request.lane, "the comparison of changes", error)
            return
        self.post(events.SourceCompared(request.lane, time.time(), request.run, paths))

    def _rests_on(self, lane: Lane, snapshot: Snapshot) -> bool:
        state = self.state.lanes[lane]
        return isinstance(state.activity, Idle) and not state.pending and state.knowledge.snapshot is snapshot

    async def _execute(self, start: events.StartRun, signal: StopSignal) -> None:
        """Execute a run and post exactly one `RunEnded`, whatever happens."""
        run = start.run
        ending: events.Ending = events.ToolFailure(Problem("bug", "the run was abandoned"), is_transient=False)
        began = time.monotonic()
        try:
            ending = await self._pipelines[run.lane].execute(start, self.post, signal)
            if isinstance(ending, events.Judged):
                await self._hold_back(run.lane, began)
        except WatchtestError as error:
            log.warning("run %s broke: %s", run.id, error)
            problem = Problem(error.code, error.message, error.hint)
            ending = events.ToolFailure(problem, error.is_transient, error.retries_forever)
        except Exception as error:
            log.exception("run %s failed because of a bug", run.id)
            problem = Problem("bug", f"internal error: {_describe(error)}", "the log has the details; please report it")
            ending = events.ToolFailure(problem, is_transient=True)
        finally:
            self.post(events.RunEnded(run.lane, time.time(), run.id, ending))

    async def _build(self, request: events.BuildEnvironment, signal: StopSignal, earlier: _ActiveRun | None) -> None:
        """Build a clean environment after the earlier build has ended, and post its end unless it was stopped."""
        lane, key = request.lane, request.key
        if earlier is not None:
            await asyncio.wait((earlier.task,))
        built: events.EnvironmentBuilt | None = None
        try:
            if not signal.is_set and await self._pipelines[lane].build(key, self.post, signal):
                built = events.EnvironmentBuilt(lane, time.time(), key)
        except WatchtestError as error:
            log.warning("the environment of the %s lane could not be built: %s", lane, error)
            problem = Problem(error.code, f"no clean environment: {error.message}", error.hint)
            built = events.EnvironmentBuilt(lane, time.time(), key, problem, error.is_transient)
        except Exception as error:
            log.exception("the build for the %s lane failed because of a bug", lane)
            problem = Problem("bug", f"internal error: {_describe(error)}", "the log has the details; please report it")
            built = events.EnvironmentBuilt(lane, time.time(), key, problem)
        if built is not None and not signal.is_set:
            self.post(built)

    async def _hold_back(self, lane: Lane, began: float) -> None:
        """Delay a verdict until the save has settled, so that late changes of the same save are noticed before."""
        await asyncio.sleep(max(0.0, began + self.state.lanes[lane].settings.settle_s - time.monotonic()))
        if comparisons := self._comparisons.get(lane):
            await asyncio.wait(tuple(comparisons), timeout=COMPARE_LIMIT_S)

    async def _end_runs(self) -> list[Exception]:
        """Stop all runs and builds and close all boxes, even if one of them fails; return the exceptions."""
        active = [run for run in (*self._runs.values(), *self._builds.values()) if not run.task.done()]
        for run in active:
            run.signal.set(StopReason.KILLED)
        if active:
            _, late = await asyncio.wait([run.task for run in active], timeout=LEAVE_LIMIT_S)
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

    async def _watch(self, stream: EventStream) -> None:
        async for event in stream():
            self.post(event)

    async def _tick(self) -> None:
        while True:
            await self._next_tick()
            now = time.time()
            for view in self._views:
                view.tick(now)

    async def _next_tick(self) -> None:
        is_at_work = any(isinstance(lane.activity, Working) for lane in self.state.lanes.values())
        if not is_at_work and not self._has_news.is_set():
            try:
                async with asyncio.timeout(REST_TICK_S):
                    await self._has_news.wait()
            except TimeoutError:
                return
        self._has_news.clear()
        await asyncio.sleep(TICK_S)


def _describe(error: Exception) -> str:
    """Return a line like `ValueError: bad (parse, line 7)`."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
