"""The watcher: assembles lanes, views and the API, and is the one place where their lifetimes nest."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from watchtest import __version__, exit_codes, wiring
from watchtest.boxes.protocols import BoxProvider
from watchtest.config import Config, Project
from watchtest.config.loader import ConfigChangeNotice
from watchtest.control.address import socket_paths, token_file
from watchtest.control.gateway import ApiContext, Explain, Gateway
from watchtest.control.run_reports import PastRuns
from watchtest.control.server import ControlServer, TcpEndpoint
from watchtest.core.events import EVERYTHING, Event, NoteAdded, RunRequested, SourceChanged
from watchtest.core.model import Lane, OnChange, Policy, Result, RunState
from watchtest.core.state import AuditSchedule, Idle, LaneSettings, LaneState, State
from watchtest.core.text import encodable, timestamp, uncleaned
from watchtest.errors import UsageError, WatchtestError
from watchtest.history.queries.run_queries import last_full_results
from watchtest.history.run_recorder import RunRecorder
from watchtest.history.store.database_file import history_exists, history_path, open_for_reading
from watchtest.history.store.retention import RetentionLimits
from watchtest.history.store.store import Store
from watchtest.loop import EventStream, Loop, View
from watchtest.memory import Housekeeping
from watchtest.pipeline import Pipeline
from watchtest.selection.map_keeper import MapKeeper
from watchtest.sources.file_watch import save_events, watch_timing
from watchtest.sources.git_tree import GitTree
from watchtest.sources.git_watch import git_events
from watchtest.sources.worktree import Worktree
from watchtest.views import words
from watchtest.views.dashboard.dashboard import Dashboard, has_screen
from watchtest.views.dashboard.watcher_screen import LocalBackend, ScreenServer
from watchtest.views.lines.json_lines import JsonLines
from watchtest.views.lines.plain_lines import PlainLines, log_event
from watchtest.views.mood import counts_as_green
from watchtest.views.notify.notifier import build_notifier
from watchtest.views.notify.terminal_channel import NotificationRelay
from watchtest.views.status.status_writer import StatusFile, writer_of_this_process
from watchtest.views.status.stop_record import record_file
from watchtest.workspace import manual_changes
from watchtest.workspace.folder import FOLDER
from watchtest.workspace.shrink_guard import has_consent

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DisplayOptions:
    """How the watcher shows its state."""

    once: bool = False
    plain: bool = False
    json_lines: bool = False
    silent: bool = False
    """Print nothing: in the background, only the log and the status file report."""


async def run_watcher(
    project: Project, show: DisplayOptions, keep_lock: Callable[[], None], reread: Callable[[], Config]
) -> int:
    """Watch until a stop is requested, and return the exit code.

    The caller holds the lock of the workspace; `keep_lock` checks it regularly. `reread` loads the settings again.
    """
    on = wiring.policies(project.config)
    if show.once and set(on.values()) == {Policy.OFF}:
        raise UsageError("--once: every trigger is off, so there is nothing to run", hint="try --trigger save=all")
    top = next(iter(on))

    def say(text: str) -> None:
        log.warning("%s", text)
        running.call_soon_threadsafe(loop.post, NoteAdded(top, time.time(), text, is_kept=True))

    running = asyncio.get_running_loop()
    views: list[View] = []
    async with AsyncExitStack() as stack:
        lanes = _Lanes(project, on, once=show.once)
        stack.callback(lanes.close)
        session = secrets.token_hex(3)
        selection = project.config.selection
        settings = LaneSettings(
            OnChange(project.config.runner.on_change),
            watch_timing(project).settle_s,
            AuditSchedule() if show.once else AuditSchedule(selection.audit_runs, selection.audit_idle_s),
        )
        keeper = MapKeeper(
            wiring.maps_folder(project.dirs.state, project.workspace),
            {lane: pipeline.executor.selector for lane, pipeline in lanes.pipelines.items()},
        )
        earlier = await asyncio.to_thread(_earlier_results, project)
        states = {
            lane: LaneState(
                lane,
                policy,
                session if lane is Lane.SAVE else f"{session}-{lane.value}",  # run ids begin with it
                settings,
                unjudged_results=earlier,
                knowledge=await asyncio.to_thread(keeper.resume, lane, earlier),
            )
            for lane, policy in on.items()
        }
        loop = Loop(State(states, once=show.once), lanes.pipelines, lanes.background(say), views)
        leaving = stack.enter_context(_signals(loop))
        backend = LocalBackend(lambda: loop.state, loop.post, project.workspace.name, str(project.workspace))
        status = await _enter_views(stack, project, show, backend, views, say, leaving)
        if not show.once:
            await _enter_control(stack, project, loop, views, status, say, lanes.explain, backend)
        for text in lanes.notes:
            say(text)
        housekeeping = Housekeeping()
        views += [
            View(ConfigChangeNotice(project.config, reread, say).show),
            View(tick=lambda _now: keep_lock()),
            View(tick=lambda now: _go_on_if_accepted(project, loop, now)),
            View(tick=lambda now: _judge_kept_changes(project, loop, now)),
            View(tick=lambda now: keeper.tick(loop.state, now)),
            View(tick=lambda now: housekeeping.tick(loop.state, now)),
        ]
        last = await loop.run()
        await keeper.close(last)
    if leaving.dashboard is not None:
        # The dashboard's screen is gone; print the verdict where it stays visible.
        line = words.standing(replace(last.top, activity=Idle()))
        sys.stdout.write(encodable(f"{line}\n", sys.stdout.encoding))
    return exit_codes.INTERRUPTED if leaving.is_interrupted else exit_code(last, show.once)


async def run_tree(
    project: Project, lane: Lane, source: GitTree, provider: BoxProvider, say: Callable[[str], None]
) -> State:
    """Run all tests of one tree in a separate box, with or without a watcher, and return the last state."""
    state = State({lane: LaneState(lane, Policy.ALL, f"{secrets.token_hex(3)}-gate")}, once=True)
    pipelines = {lane: wiring.build_pipeline(project, lane, provider, source)}
    views = [View(PlainLines(sys.stderr).show)]
    loop = Loop(state, pipelines, [lambda: _one_request(lane)], views)
    with ExitStack() as stack:
        recorder = open_recorder(project, say, is_watcher=False)
        if recorder is not None:
            views.append(View(stack.enter_context(recorder).show))
        stack.enter_context(_signals(loop))
        return await loop.run()


async def _one_request(lane: Lane) -> AsyncIterator[Event]:
    yield RunRequested(lane, time.time())
    await asyncio.Event().wait()


class _Lanes:
    """The sources, boxes and pipelines of the lanes that are on."""

    def __init__(self, project: Project, on: Mapping[Lane, Policy], *, once: bool) -> None:
        self._project = project
        self.notes: list[str] = []
        self._worktree: Worktree | None = None
        self._trees: dict[Lane, GitTree] = {}
        self.pipelines: dict[Lane, Pipeline] = {}
        build_lock = None if once else asyncio.Lock()
        for lane, policy in on.items():
            provider = wiring.choose_provider(project, lane, self._note)
            is_selecting = policy is Policy.AFFECTED
            self.pipelines[lane] = wiring.build_pipeline(
                project, lane, provider, self._source(lane), is_selecting=is_selecting, build_lock=build_lock
            )

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _source(self, lane: Lane) -> Worktree | GitTree:
        if lane is Lane.SAVE:
            self._worktree = wiring.build_worktree(self._project)
            self.notes += self._worktree.notes
            return self._worktree
        tree = self._trees[lane] = wiring.build_git_tree(self._project, "index" if lane is Lane.STAGE else "head")
        return tree

    def background(self, say: Callable[[str], None]) -> list[EventStream]:
        """Return the endless streams of events from the file system and git."""
        streams: list[EventStream] = []
        if self._worktree is not None:
            streams.append(partial(save_events, self._project, self._worktree, say))
        if self._trees:
            streams.append(partial(git_events, self._project, dict(self._trees)))
        return streams

    async def explain(self, lane: LaneState, what: str) -> dict[str, Any] | None:
        return await self.pipelines[lane.lane].executor.selector.explained(what, lane.knowledge.base)

    def close(self) -> None:
        for tree in self._trees.values():
            tree.close()


async def _enter_views(
    stack: AsyncExitStack,
    project: Project,
    show: DisplayOptions,
    backend: LocalBackend,
    views: list[View],
    say: Callable[[str], None],
    leaving: Shutdown,
) -> StatusFile:
    recorder = open_recorder(project, say, is_watcher=True)
    if recorder is not None:
        views.append(View(stack.enter_context(recorder).show))
        backend.flaky = lambda: recorder.flaky
    status = stack.enter_context(
        StatusFile(
            project.workspace / FOLDER,
            writer_of_this_process(__version__),
            on_problem=say,
            flaky=backend.flaky,
            stop_record=record_file(project.dirs.state, project.workspace),
        )
    )
    views.append(View(lambda _before, after, _event: status.show(after, time.time()), status.tick))
    relay = NotificationRelay()
    backend.notice = lambda: relay.live
    notifier = (
        None if show.once else build_notifier(project, uncleaned(sys.stdout), say, leaving.is_terminal_lent, relay)
    )
    if notifier is not None:
        await stack.enter_async_context(notifier)
        views.append(View(lambda _before, after, _event: notifier.show(after, time.time()), notifier.tick))
    views.append(View(log_event))
    if show.silent:
        return status
    if show.json_lines:
        views.append(View(JsonLines(sys.stdout).show))
    elif show.plain or show.once or not has_screen(project.environ):
        views.append(View(PlainLines(sys.stdout).show))
    else:
        dashboard = Dashboard(backend, str(project.workspace), project.environ, say)
        leaving.dashboard = await stack.enter_async_context(dashboard)
        views.append(View(lambda _before, _after, _event: dashboard.screen.refresh(time.time()), dashboard.tick))
    return status


async def _enter_control(
    stack: AsyncExitStack,
    project: Project,
    loop: Loop,
    views: list[View],
    status: StatusFile,
    say: Callable[[str], None],
    explain: Explain,
    backend: LocalBackend,
) -> None:
    """Serve the API, which `watchtest run`, `cancel`, `pause` and `why` use, and other programs may use."""
    past = PastRuns(history_path(project.dirs.state, project.workspace), project.workspace)
    gateway = Gateway(lambda: loop.state, loop.post, past, explain)
    screens = ScreenServer(backend)
    views += [View(gateway.show), View(screens.show)]
    listen = project.config.api.listen
    context = ApiContext(
        gateway, lambda: status.document(loop.state), screens, project.workspace, timestamp(status.writer.started_at)
    )
    server = ControlServer(
        context,
        socket_paths(project.workspace, project.dirs.runtime),
        say=say,
        port=TcpEndpoint(listen, token_file(project.dirs.state, project.workspace)) if listen else None,
    )
    await stack.enter_async_context(server)


def open_recorder(project: Project, say: Callable[[str], None], *, is_watcher: bool) -> RunRecorder | None:
    """Return the recorder of the history; None if it is disabled, or, after a warning, if it cannot be opened."""
    if not project.config.history.enabled:
        return None
    try:
        store = Store(history_path(project.dirs.state, project.workspace), say)
    except WatchtestError as error:
        say(f"the history is not recorded: {error}")
        return None
    history = project.config.history
    limits = RetentionLimits(history.max_days, history.max_runs, history.max_mb)
    return RunRecorder(store, str(project.workspace), say, is_watcher=is_watcher, limits=limits)


def _earlier_results(project: Project) -> Mapping[str, Result]:
    """Return the results of the last complete run of an earlier watcher; they determine the order of the first run."""
    path = history_path(project.dirs.state, project.workspace)
    if not project.config.history.enabled or not history_exists(path):
        return {}
    try:
        with open_for_reading(path) as connection:
            return last_full_results(connection, str(project.workspace))
    except WatchtestError as error:
        log.info("the first run uses the runner's own order: %s", error)
        return {}


def exit_code(state: State, once: bool) -> int:
    """Return the exit code of a watcher: with `--once`, that of its worst lane."""
    if not once:
        return 0
    return exit_codes.worst([_lane_exit_code(lane) for lane in state.ranked])


def _lane_exit_code(lane: LaneState) -> int:
    code = exit_codes.OF_RUN[lane.runs.last.state if lane.runs.last else RunState.CANCELLED]
    # Only some tests may have run, or the code may have changed since.
    is_green = counts_as_green(replace(lane, activity=Idle()))
    return exit_codes.RED if code == exit_codes.OK and not is_green else code


def _go_on_if_accepted(project: Project, loop: Loop, now: float) -> None:
    """Continue a lane whose source shrank if the user has accepted that."""
    asking = [lane for lane in loop.state.ranked if lane.problem is not None and lane.problem.code == "shrank"]
    if asking and has_consent(project.workspace):
        loop.post(SourceChanged(asking[0].lane, now, frozenset({EVERYTHING})))


def _judge_kept_changes(project: Project, loop: Loop, now: float) -> None:
    """Run the tests again if the user has kept what was changed by hand: their verdict is no longer provisional."""
    lane = loop.state.lanes.get(Lane.SAVE)
    if (
        lane is None
        or lane.knowledge.provisional is None
        or not isinstance(lane.activity, Idle)
        or lane.queue
        or lane.pending
    ):
        return
    if lane.build is None and not manual_changes.changes(project.workspace):
        loop.post(SourceChanged(Lane.SAVE, now, frozenset({EVERYTHING})))


@dataclass(slots=True)
class Shutdown:
    """How the watcher ends, and whether another program has the terminal at the moment."""

    is_interrupted: bool = False
    dashboard: Dashboard | None = None

    def is_terminal_lent(self) -> bool:
        """Return whether a pager or an editor uses the terminal."""
        return self.dashboard is not None and self.dashboard.is_program_open


def leaving_signals() -> list[int]:
    """Return the signals that end a watcher. Signals that were ignored at the start stay ignored, as `nohup` wants."""
    numbers = [signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    return [signal.SIGTERM, *(number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN)]


@contextmanager
def _signals(loop: Loop) -> Iterator[Shutdown]:
    """Stop the loop on Ctrl-C and other signals."""
    leaving = Shutdown()

    def leave(number: int) -> None:
        if number == signal.SIGINT:
            if leaving.is_terminal_lent():
                return  # it is meant for the pager or the editor
            if leaving.is_interrupted:  # the second Ctrl-C ends the process at once
                if leaving.dashboard is not None:
                    leaving.dashboard.release_terminal()
                os._exit(exit_codes.INTERRUPTED)
            leaving.is_interrupted = True
        loop.quit()

    running = asyncio.get_running_loop()
    numbers = leaving_signals()
    try:
        for number in numbers:
            running.add_signal_handler(number, leave, number)
    except NotImplementedError:  # Windows: Ctrl-C raises KeyboardInterrupt
        numbers = []
    try:
        yield leaving
    finally:
        for number in numbers:
            running.remove_signal_handler(number)
