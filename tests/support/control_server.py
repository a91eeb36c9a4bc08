"""A real loop behind a real control server on a real socket. Only the runs are scripted by the test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from watchtest.boxes.protocols import StopSignal
from watchtest.client.watcher import ControlClient, WatcherUnreachable
from watchtest.control.address import socket_paths
from watchtest.control.api.request_models import RunsQuery
from watchtest.control.feed import EVENTS_LIMIT
from watchtest.control.gateway import ApiContext, Gateway
from watchtest.control.run_reports import PastRuns, Position, RunReport
from watchtest.control.server import ControlServer, TcpEndpoint
from watchtest.core.events import (
    Ending,
    Halted,
    Judged,
    Post,
    SnapshotTaken,
    StartRun,
    TestsCollected,
    TestsEnded,
)
from watchtest.core.model import (
    Entry,
    EntryKind,
    Execution,
    Lane,
    Outcome,
    Policy,
    Result,
    RunState,
    Snapshot,
    Trigger,
)
from watchtest.core.state import LaneState, State
from watchtest.core.text import timestamp
from watchtest.loop import Loop, View
from watchtest.views.dashboard.watcher_screen import LocalBackend, ScreenServer

SNAPSHOT = Snapshot("tree1", {"code.py": Entry(EntryKind.FILE, 0o644, 1, "1")})
TEST = "test_a.py::test_one"
LIMIT_S = 10.0


class _Box:
    async def close(self) -> None:
        """Do nothing, because nothing is open."""


@dataclass
class ScriptedPipeline:
    """A pipeline whose runs do what the test says. Each waits for its outcome or a stop signal, and reports the results
    that it is given before."""

    lane: Lane = Lane.SAVE
    started: list[StartRun] = field(default_factory=list)
    outcomes: asyncio.Queue[Outcome | Exception | tuple[Result, ...]] = field(default_factory=asyncio.Queue)
    box: _Box = field(default_factory=_Box)

    def listen(self, post: Post) -> None:
        """Do nothing, because there is no box."""

    async def changed_since(self, snapshot: Snapshot, paths: frozenset[str]) -> frozenset[str]:
        return frozenset()

    async def execute(self, start: StartRun, post: Post, signal: StopSignal) -> Ending:
        self.started.append(start)
        run = start.run.id
        post(SnapshotTaken(self.lane, time.time(), run, SNAPSHOT))
        post(TestsCollected(self.lane, time.time(), run, frozenset({TEST})))
        results: dict[str, Result] = {}
        while isinstance(step := await self._next(signal), tuple):
            results |= {result.test: result for result in step}
            post(TestsEnded(self.lane, time.time(), run, step))
        match step:
            case None:
                assert signal.reason is not None
                return Halted(signal.reason)
            case Exception():
                raise step
            case _:
                result = Result(TEST, step, 0.1)
        post(TestsEnded(self.lane, time.time(), run, (result,)))
        results[TEST] = result
        code = 1 if any(each.outcome.is_red for each in results.values()) else 0
        return Judged(SNAPSHOT, Execution(code, frozenset(results), results))

    async def _next(self, signal: StopSignal) -> Outcome | Exception | tuple[Result, ...] | None:
        stop, outcome = asyncio.create_task(signal.job_stops.get()), asyncio.create_task(self.outcomes.get())
        await asyncio.wait({stop, outcome}, return_when=asyncio.FIRST_COMPLETED)
        for task in (stop, outcome):
            task.cancel()
        return None if not outcome.done() or outcome.cancelled() else outcome.result()


@dataclass
class Bench:
    """The watcher under test and a client for it."""

    loop: Loop
    runs: ScriptedPipeline
    client: ControlClient
    says: list[str]
    serving: asyncio.Task[State]
    gateway: Gateway

    async def get(self, path: str) -> dict[str, Any]:
        return await asyncio.to_thread(self.client.get, path)

    async def post(self, path: str, body: dict[str, object] | None = None) -> dict[str, Any]:
        return await asyncio.to_thread(self.client.post, path, body)

    async def until(self, what: str, look: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not look():
            assert time.monotonic() < deadline, f"not within the limit: {what}; {self.says}"
            await asyncio.sleep(0.005)

    async def end_of(self, run: str) -> dict[str, Any]:
        deadline = time.monotonic() + LIMIT_S
        while not (report := await self.get(f"/runs/{run}"))["ended"]:
            assert time.monotonic() < deadline, report
            await asyncio.sleep(0.005)
        return report

    async def raw(self, request: bytes) -> bytes:
        """Return the server's answer to these bytes."""
        reader, writer = await asyncio.open_unix_connection(str(self.client.paths[0]))
        writer.write(request)
        with suppress(ConnectionError):  # the server may answer before everything is sent
            await writer.drain()
        answer = await asyncio.wait_for(reader.read(), LIMIT_S)
        writer.close()
        return answer


@contextmanager
def short_folder() -> Iterator[Path]:
    """Return a folder with a short path, as sockets require; tmp_path is too long."""
    with TemporaryDirectory(prefix="wt-") as folder:
        yield Path(folder)


@dataclass
class FakeHistory(PastRuns):
    """A history of these runs, and of these results for each of them."""

    kept: Sequence[RunReport] = ()
    said: Mapping[str, Sequence[Result]] = field(default_factory=dict)

    def run(self, run_id: str) -> RunReport | None:
        return next((run for run in self.kept if run.id == run_id), None)

    def runs(self, query: RunsQuery, before: Position | None, limit: int) -> Sequence[RunReport]:
        def is_before(run: RunReport) -> bool:
            return before is None or run.position < before

        newest_first = sorted(self.kept, key=lambda run: run.queued_at or 0.0, reverse=True)
        return [run for run in newest_first if is_before(run) and query.lane in (None, run.lane)][:limit]

    def results(self, run_id: str) -> Sequence[Result]:
        return self.said.get(run_id, ())


async def explain(_lane: LaneState, what: str) -> dict[str, Any] | None:
    return {"kind": "test", "test": what} if what.startswith("tests/") else None


@asynccontextmanager
async def bench(
    folder: Path,
    *lanes: Lane,
    policy: Policy = Policy.ALL,
    past: PastRuns | None = None,
    listen: str = "",
    status: Callable[[], dict[str, Any]] = lambda: {"schema": "watchtest.status"},
    is_awaited: bool = True,
    events_limit: int = EVENTS_LIMIT,
) -> AsyncIterator[Bench]:
    """Yield a watcher whose socket answers; stop it and all its tasks at the end."""
    runs, says, views = ScriptedPipeline(), list[str](), list[View]()
    states = {lane: LaneState(lane, policy, f"s-{lane.value}") for lane in lanes or (Lane.SAVE,)}
    loop = Loop(State(states), dict.fromkeys(states, runs), [], views)
    gateway = Gateway(lambda: loop.state, loop.post, past or FakeHistory(), explain, events_limit=events_limit)
    views.append(View(gateway.show))
    paths = socket_paths(Path("/some/workspace"), [folder])
    screens = ScreenServer(LocalBackend(lambda: loop.state, loop.post, "shop", "/some/workspace"))
    views.append(View(screens.show))
    server = ControlServer(
        ApiContext(gateway, status, screens, Path("/some/workspace"), timestamp(time.time())),
        paths,
        say=says.append,
        port=TcpEndpoint(listen, folder / "token") if listen else None,
        start_limit_s=0.01,
    )
    serving = asyncio.create_task(loop.run())
    try:
        async with server:
            made = Bench(loop, runs, ControlClient(paths), says, serving, gateway)
            if is_awaited:
                await _until_it_answers(made)
            yield made
            loop.quit()
            await asyncio.wait_for(serving, LIMIT_S)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def _until_it_answers(made: Bench) -> None:
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            await made.get("/health")
        except WatcherUnreachable:
            assert time.monotonic() < deadline, made.says
            await asyncio.sleep(0.02)
        else:
            return


Story = Callable[[Bench], Awaitable[None]]


def play(story: Story, *lanes: Lane, policy: Policy = Policy.ALL) -> None:
    async def whole() -> None:
        with short_folder() as folder:
            async with bench(folder, *lanes, policy=policy) as watcher:
                await story(watcher)
            assert watcher.says == []

    asyncio.run(whole())


def old(number: int, lane: Lane = Lane.SAVE, state: RunState = RunState.PASSED) -> RunReport:
    return RunReport(f"old.{number}", lane, Trigger.SAVE, state, queued_at=float(number), ended_at=number + 0.5)
