"""The loop with failing parts: every failure in the background is reported, and nothing waits forever."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from watchtest.boxes.protocols import StopSignal
from watchtest.core.events import (
    EVERYTHING,
    Ending,
    Event,
    Halted,
    Judged,
    NoteAdded,
    Post,
    RunRequested,
    SnapshotTaken,
    SourceChanged,
    SourceCompared,
    StartRun,
    TestsCollected,
)
from watchtest.core.model import (
    All,
    Entry,
    EntryKind,
    Execution,
    Lane,
    Outcome,
    Policy,
    Result,
    RunState,
    Snapshot,
    StopReason,
)
from watchtest.core.state import Broken, Idle, LaneState, State
from watchtest.core.transitions import RunDropped, RunFinished, RunQueued, facts_of, unfinished
from watchtest.errors import WorkspaceError
from watchtest.loop import EventStream, Loop, View

SAVE = Lane.SAVE
TREE = Snapshot("t1", {"a.py": Entry(EntryKind.FILE, 0o644, 1, "d")})
GREEN = Execution(0, frozenset({"a.py::t"}), {"a.py::t": Result("a.py::t", Outcome.PASSED, 0.1)})
LIMIT_S = 10.0

Runs = Callable[[StartRun, Post, StopSignal], Awaitable[Ending]]


@dataclass
class FakeBox:
    error: Exception | None = None
    is_closed: bool = False

    async def close(self) -> None:
        self.is_closed = True
        if self.error is not None:
            raise self.error


async def at_once(start: StartRun, post: Post, _wish: StopSignal) -> Ending:
    post(SnapshotTaken(SAVE, time.time(), start.run.id, TREE))
    return Judged(TREE, GREEN)


@dataclass
class FakePipeline:
    """A lane's pipeline that does what the test requires."""

    runs: Runs = at_once
    box: FakeBox = field(default_factory=FakeBox)
    look_error: Exception | None = None
    differing: frozenset[str] = frozenset()

    def listen(self, post: Post) -> None:
        pass

    async def execute(self, start: StartRun, post: Post, signal: StopSignal) -> Ending:
        return await self.runs(start, post, signal)

    async def changed_since(self, snapshot: Snapshot, paths: frozenset[str]) -> frozenset[str]:
        if self.look_error is not None:
            raise self.look_error
        return self.differing & paths


@dataclass
class Watched:
    """A loop with a view that records, and signals when something was shown."""

    pipeline: FakePipeline
    watching: tuple[EventStream, ...] = ()
    views: tuple[View, ...] = ()
    lanes: tuple[Lane, ...] = (SAVE,)
    events: list[Event | None] = field(default_factory=list)
    queued: set[str] = field(default_factory=set)
    ends: dict[str, tuple[RunState, str]] = field(default_factory=dict)
    is_told_to_leave: bool = False

    def __post_init__(self) -> None:
        states = {lane: LaneState(lane, Policy.ALL, f"s{lane.value}") for lane in self.lanes}
        self.loop = Loop(
            State(states),
            dict.fromkeys(self.lanes, self.pipeline),
            self.watching,
            [*self.views, View(self.show)],
            recheck_after_s=0.01,
        )

    def show(self, before: State, after: State, event: Event | None) -> None:
        self.events.append(event)
        if event is None:
            self.ends |= {run.id: (RunState.CANCELLED, reason) for run, reason in unfinished(before)}
            return
        for fact in facts_of(before, after, event):
            match fact:
                case RunQueued(run=run):
                    self.queued.add(run.id)
                case RunFinished(finished=finished):
                    self.ends[finished.run.id] = (finished.state, finished.reason)
                case RunDropped(run=run, reason=reason):
                    self.ends[run.id] = (RunState.CANCELLED, reason)
                case _:
                    pass

    @property
    def notes(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, NoteAdded)]

    async def until(self, condition: Callable[[State], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition(self.loop.state):
            assert time.monotonic() < deadline, f"still {self.loop.state.top.activity} after {self.events}"
            await asyncio.sleep(0.01)

    def play(self, scene: Callable[[], Awaitable[None]]) -> State:
        """Run the loop alongside the scene, then ask it to leave."""

        async def whole() -> State:
            running = asyncio.create_task(self.loop.run())
            playing = asyncio.ensure_future(scene())
            await asyncio.wait({running, playing}, return_when=asyncio.FIRST_COMPLETED, timeout=LIMIT_S)
            self.loop.quit()
            last = await asyncio.wait_for(running, LIMIT_S)
            await playing
            return last

        return asyncio.run(whole())


def change(*paths: str) -> SourceChanged:
    return SourceChanged(SAVE, time.time(), frozenset(paths))


def is_idle_after_a_run(state: State) -> bool:
    return isinstance(state.top.activity, Idle) and state.top.runs.last is not None


# -- parts that fail -------------------------------------------------------------------------------


def test_a_run_that_fails_by_a_bug_is_broken_and_says_where(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(_start: StartRun, _post: Post, _wish: StopSignal) -> Ending:
        raise KeyError("a bug of ours")

    watched = Watched(FakePipeline(fails))

    async def scene() -> None:
        watched.loop.post(change("a.py"))
        await watched.until(lambda state: isinstance(state.top.activity, Broken))
        problem = watched.loop.state.top.problem
        assert problem is not None
        assert problem.code == "bug"
        assert "KeyError: 'a bug of ours' (fails, line" in problem.message

    last = watched.play(scene)
    assert last.top.runs.last is not None
    assert last.top.runs.last.state is RunState.BROKEN
    assert any(record.exc_info for record in caplog.records), "the traceback is in the log"


def test_a_run_that_breaks_for_a_known_reason_says_that_one() -> None:
    async def fails(_start: StartRun, _post: Post, _wish: StopSignal) -> Ending:
        raise WorkspaceError("the disk is gone", hint="plug it in")

    watched = Watched(FakePipeline(fails))

    async def scene() -> None:
        watched.loop.post(change("a.py"))
        await watched.until(lambda state: isinstance(state.top.activity, Broken))
        problem = watched.loop.state.top.problem
        assert problem is not None
        assert (problem.message, problem.hint) == ("the disk is gone", "plug it in")

    watched.play(scene)


def failing_view(error: Exception) -> View:
    def show(_before: State, _after: State, event: Event | None) -> None:
        if isinstance(event, SnapshotTaken):
            raise error

    return View(show)


def test_a_view_that_fails_ends_the_watcher_and_the_history_is_closed() -> None:
    async def endless(start: StartRun, post: Post, signal: StopSignal) -> Ending:
        post(SnapshotTaken(SAVE, time.time(), start.run.id, TREE))
        await signal.job_stops.get()
        return Halted(signal.reason or StopReason.CANCELLED)

    watched = Watched(FakePipeline(endless), views=(failing_view(ZeroDivisionError("the view")),))

    async def scene() -> None:
        watched.loop.post(change("a.py"))
        await asyncio.sleep(LIMIT_S)

    with pytest.raises(ZeroDivisionError, match="the view"):
        watched.play(scene)
    assert watched.events[-1] is None, "the view after it has seen the end"
    assert [reason for _, reason in watched.ends.values()] == ["the watcher stopped"]
    assert watched.pipeline.box.is_closed


def test_a_view_that_fails_at_the_very_end_is_heard_of_and_the_others_see_the_end() -> None:
    def show(_before: State, _after: State, event: Event | None) -> None:
        if event is None:
            raise ZeroDivisionError("at the end")

    watched = Watched(FakePipeline(), views=(View(show),))

    async def scene() -> None:
        pass

    with pytest.raises(ZeroDivisionError, match="at the end"):
        watched.play(scene)
    assert watched.events[-1] is None


def test_a_tick_that_fails_ends_the_watcher() -> None:
    def tick(_now: float) -> None:
        raise ZeroDivisionError("the tick")

    watched = Watched(FakePipeline(), views=(View(lambda _before, _after, _event: None, tick),))

    async def scene() -> None:
        await asyncio.sleep(LIMIT_S)

    with pytest.raises(ZeroDivisionError, match="the tick"):
        watched.play(scene)
    assert watched.events[-1] is None


@pytest.mark.parametrize("error", [WorkspaceError("the disk is gone", hint="plug it in"), RuntimeError("a bug")])
def test_a_watch_that_fails_ends_the_watcher_with_its_own_words(error: Exception) -> None:
    async def watching() -> AsyncIterator[Event]:
        yield change(EVERYTHING)
        raise error

    def show(_before: State, _after: State, event: Event | None) -> None:
        if event is None:
            raise ZeroDivisionError("at the end")

    watched = Watched(FakePipeline(box=FakeBox(OSError("stuck"))), watching=(watching,), views=(View(show),))

    async def scene() -> None:
        await asyncio.sleep(LIMIT_S)

    with pytest.raises(type(error)) as raised:
        watched.play(scene)
    assert raised.value is error, "what went wrong afterwards does not hide it"
    assert watched.events[-1] is None


def test_a_watch_that_just_ends_is_a_failure() -> None:
    async def watching() -> AsyncIterator[Event]:
        yield change(EVERYTHING)

    watched = Watched(FakePipeline(), watching=(watching,))

    async def scene() -> None:
        await asyncio.sleep(LIMIT_S)

    with pytest.raises(AssertionError, match="'watch' ended unexpectedly"):
        watched.play(scene)


def test_a_box_that_cannot_be_closed_does_not_hide_the_end_nor_keep_others_open() -> None:
    watched = Watched(FakePipeline(box=FakeBox(OSError("stuck"))))

    async def scene() -> None:
        watched.loop.post(change("a.py"))
        await watched.until(is_idle_after_a_run)

    with pytest.raises(OSError, match="stuck"):
        watched.play(scene)
    assert watched.events[-1] is None


def test_a_failure_in_a_callback_or_a_dropped_task_is_said(caplog: pytest.LogCaptureFixture) -> None:
    def falls() -> None:
        raise ZeroDivisionError("no owner")

    watched = Watched(FakePipeline())

    async def scene() -> None:
        asyncio.get_running_loop().call_soon(falls)
        await watched.until(lambda _state: bool(watched.notes))

    with caplog.at_level(logging.ERROR):
        watched.play(scene)
    assert "a background task failed because of a bug: ZeroDivisionError: no owner" in watched.notes[0]
    assert any(record.exc_info for record in caplog.records)


# -- looking at the source -------------------------------------------------------------------------


async def long_run(start: StartRun, post: Post, signal: StopSignal) -> Ending:
    """Run tests until they are stopped."""
    post(SnapshotTaken(SAVE, time.time(), start.run.id, TREE))
    post(TestsCollected(SAVE, time.time(), start.run.id, frozenset()))
    post(TestsCollected(SAVE, time.time(), start.run.id, frozenset({"a.py::t"})))
    if start.run.id.endswith(".1"):
        await signal.job_stops.get()
        return Halted(signal.reason or StopReason.CANCELLED)
    return Judged(TREE, GREEN)


def is_executing(watched: Watched) -> Callable[[State], bool]:
    return lambda _state: sum(isinstance(event, TestsCollected) for event in watched.events) == 2


def test_a_change_of_what_is_still_to_run_supersedes_the_run_and_is_run() -> None:
    watched = Watched(FakePipeline(long_run, differing=frozenset({"a.py"})))

    async def scene() -> None:
        watched.loop.post(change("a.py"))
        await watched.until(is_executing(watched))
        watched.loop.post(change("a.py", "touched.py"))
        await watched.until(is_idle_after_a_run)

    last = watched.play(scene)
    assert last.top.runs.recent_states == (RunState.SUPERSEDED, RunState.PASSED)
    assert [event.paths for event in watched.events if isinstance(event, SourceCompared)] == [frozenset({"a.py"})]


@pytest.mark.parametrize(
    ("error", "says"),
    [(WorkspaceError("cannot be read"), False), (ZeroDivisionError("peeking"), True)],
)
def test_a_look_that_fails_ends_no_run_and_a_bug_in_it_is_said(error: Exception, says: bool) -> None:
    watched = Watched(FakePipeline(long_run, look_error=error))

    async def scene() -> None:
        watched.loop.post(change("a.py"))
        await watched.until(is_executing(watched))
        watched.loop.post(change("a.py"))
        await watched.until(lambda _state: bool(watched.notes) or not says)
        await asyncio.sleep(0.05)
        assert watched.loop.state.top.runs.last is None, "the run goes on"
        assert watched.loop.state.top.pending.paths == {"a.py"}

    watched.play(scene)
    assert bool(watched.notes) is says
    assert (
        not says or "the comparison of changes failed because of a bug: ZeroDivisionError: peeking" in watched.notes[0]
    )


def test_a_second_look_that_fails_by_a_bug_is_said() -> None:
    watched = Watched(FakePipeline(look_error=ZeroDivisionError("looking again")))

    async def scene() -> None:
        watched.loop.post(change("a.py"))
        await watched.until(lambda _state: bool(watched.notes))

    watched.play(scene)
    assert "the recheck of the source failed because of a bug: ZeroDivisionError: looking again" in watched.notes[0]


# -- leaving ---------------------------------------------------------------------------------------


def test_what_is_asked_for_while_the_watcher_leaves_has_an_end() -> None:
    watched = Watched(FakePipeline(long_run))

    async def scene() -> None:
        watched.loop.post(change("a.py"))
        await watched.until(is_executing(watched))
        watched.loop.post(RunRequested(SAVE, time.time(), All("asked"), "s.waits"))
        watched.loop.quit()
        watched.loop.post(RunRequested(SAVE, time.time(), All("asked"), "s.late"))

    watched.play(scene)
    ends = watched.ends
    assert watched.queued == ends.keys() == {"ssave.1", "s.waits", "s.late"}
    assert ends["s.waits"] == (RunState.CANCELLED, "the watcher stopped before it began")
    assert ends["s.late"] == (RunState.CANCELLED, "refused: the watcher is stopping")
