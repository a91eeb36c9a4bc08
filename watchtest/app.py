"""The composition root: from settings to concrete parts, and the one place where their lifetimes nest."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from watchtest import __version__
from watchtest.boxes.base import Limits, Place
from watchtest.boxes.box import Box
from watchtest.boxes.docker import ContainerSpec, DockerPlace, connect
from watchtest.boxes.environment import Environment
from watchtest.boxes.local import LocalPlace
from watchtest.config import Config
from watchtest.core.events import EVERYTHING, Noted
from watchtest.core.model import Lane, Policy, RunState
from watchtest.core.state import LaneState, State
from watchtest.errors import ConfigError, EngineError, WorkspaceError
from watchtest.history.path import history_path
from watchtest.history.record import Recorder
from watchtest.history.store import Store
from watchtest.loop import Loop, View
from watchtest.pipeline import Pipeline
from watchtest.sources.watch import Timing, watch
from watchtest.sources.worktree import Worktree
from watchtest.views.dashboard import Dashboard
from watchtest.views.desktop import Desktop
from watchtest.views.keys import HELP_KEY, Keys, event_of
from watchtest.views.plain import Plain
from watchtest.views.statusfile import StatusFile, writer_of_this_process
from watchtest.workspace import FOLDER

log = logging.getLogger(__name__)
GONE_POLL_S = 1.0
EXIT_CODES = {
    RunState.PASSED: 0,
    RunState.FAILED: 1,
    RunState.ERROR: 1,
    RunState.NO_TESTS: 5,
    RunState.TIMED_OUT: 124,
    RunState.CANCELLED: 130,
    RunState.KILLED: 130,
    RunState.BROKEN: 4,
}
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE")


@dataclass(frozen=True, slots=True)
class Folders:
    """Where this user's system keeps things."""

    cache: Path
    state: Path


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything that comes from outside."""

    workspace: Path
    config: Config
    environ: Mapping[str, str]
    folders: Folders


# -- parts -----------------------------------------------------------------------------------------


def workspace_key(workspace: Path) -> str:
    """Short, readable, and different for every workspace of this machine."""
    name = re.sub(r"[^a-z0-9]+", "-", workspace.name.lower()).strip("-")[:30] or "workspace"
    return f"{name}-{hashlib.sha256(str(workspace).encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def choose_place(setting: Setting, lane: Lane, say: Callable[[str], None]) -> Place:
    """The kind of box the settings ask for; `auto` takes a container wherever there is an engine."""
    engine = setting.config.box.engine
    if engine == "docker":
        return docker_place(setting, lane)
    if engine == "auto":
        try:
            connect(setting.environ).close()
        except EngineError as error:
            say(f"no container engine ({error.message}): tests run in the local box")
        else:
            return docker_place(setting, lane)
    return local_place(setting, lane)


def docker_place(setting: Setting, lane: Lane) -> DockerPlace:
    box = setting.config.box
    spec = ContainerSpec(
        name=f"watchtest-{workspace_key(setting.workspace)}-{lane.value}",
        workspace=str(setting.workspace),
        lane=lane.value,
        image=chosen_image(box.image),
        workdir=box.workdir,
        user=box.user,
        python=box.python,
        network=box.network,
        memory=box.memory,
        cpus=box.cpus,
        pids=box.pids,
        hardened=box.hardened,
        ca_bundle=ca_bundle(box.ca, setting.environ),
    )
    return DockerPlace(spec, setting.environ)


def local_place(setting: Setting, lane: Lane) -> LocalPlace:
    folder = setting.folders.cache / "boxes" / f"{workspace_key(setting.workspace)}-{lane.value}"
    return LocalPlace(folder, setting.environ, setting.config.box.python)


def chosen_image(image: str) -> str:
    """`auto`: the official image of the Python that runs watchtest."""
    return image if image != "auto" else f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"


def ca_bundle(wish: str, environ: Mapping[str, str]) -> bytes:
    """The certificates that the host was told to trust beyond the usual: users behind a proxy need them in the box."""
    if wish == "off":
        return b""
    file = wish if wish != "auto" else next((environ[name] for name in CA_VARIABLES if environ.get(name)), "")
    if not file:
        return b""
    try:
        return Path(file).expanduser().read_bytes()
    except OSError as error:
        if wish == "auto":
            return b""
        raise ConfigError(
            f'box.ca = "{wish}": cannot be read: {error.strerror}', hint='name a file of certificates, or use "off"'
        ) from error


def build_environment(setting: Setting, place: Place) -> Environment:
    box, runner = setting.config.box, setting.config.runner
    carried = {name: setting.environ[name] for name in box.environment if name in setting.environ}
    return Environment(place, timeout_s=box.setup_timeout_s, grace_s=runner.grace_s, python=box.python, env=carried)


def build_pipeline(setting: Setting, lane: Lane, place: Place, source: Worktree) -> Pipeline:
    runner = setting.config.runner
    return Pipeline(
        lane=lane,
        source=source,
        box=Box(place),
        environment=build_environment(setting, place),
        setup=setting.config.box.setup,
        runner_args=runner.args,
        limits=Limits(runner.timeout_s, runner.silence_timeout_s, runner.grace_s),
    )


def build_source(setting: Setting) -> Worktree:
    watch_settings = setting.config.watch
    return Worktree(
        setting.workspace, ignore=watch_settings.ignore, include=watch_settings.include, environ=setting.environ
    )


# -- the watcher -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Show:
    """How the user wants to see it."""

    once: bool = False
    plain: bool = False


async def run_watcher(setting: Setting, show: Show, keep_lock: Callable[[], None]) -> int:
    """Watch until told to stop; the exit code. The caller holds the workspace's lock, `keep_lock` looks after it."""
    lane = Lane.SAVE
    before_loop: list[str] = []
    place = choose_place(setting, lane, before_loop.append)
    source = build_source(setting)
    before_loop += source.notes
    first = LaneState(lane, Policy(setting.config.triggers.save), session=secrets.token_hex(3))
    views: list[View] = []
    loop = Loop(
        State({lane: first}, once=show.once),
        {lane: build_pipeline(setting, lane, place, source)},
        {lane: lambda: _changes(setting, source, say)},
        views,
    )

    def say(text: str) -> None:
        log.warning("%s", text)
        running.call_soon_threadsafe(loop.post, Noted(lane, time.time(), text))

    running = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        interrupted = stack.enter_context(_signals(loop))
        if setting.config.history.enabled:
            store = Store.open(history_path(setting.folders.state, setting.workspace), say)
            recorder = stack.enter_context(Recorder(store, str(setting.workspace), say))
            views.append(View(recorder.show))
        status = stack.enter_context(
            StatusFile(setting.workspace / FOLDER, writer_of_this_process(__version__), on_problem=say)
        )
        views.append(View(lambda _before, after, _event: status.show(after, time.time()), status.tick))
        if setting.config.notify.desktop and not show.once:
            desktop = await stack.enter_async_context(Desktop(setting.workspace.name, say))
            views.append(View(lambda _before, after, _event: desktop.show(after)))
        if show.plain or show.once or not sys.stdout.isatty():
            plain = Plain(sys.stdout)
            views.append(View(lambda before, after, event: plain.show(before, after, event) if event else None))
        else:
            dashboard = stack.enter_context(Dashboard(title=setting.workspace.name))
            keys = stack.enter_context(Keys(sys.stdin.fileno(), lambda key: _press(key, dashboard, loop)))
            before_loop += [keys.unavailable] if keys.unavailable else []
            views.append(View(lambda _before, after, _event: dashboard.show(after, time.time()), dashboard.tick))
        views.append(View(lambda _before, _after, _event: None, lambda _now: keep_lock()))
        for text in before_loop:
            say(text)
        last = await loop.run()
    return 130 if interrupted else exit_code(last, show.once)


def exit_code(state: State, once: bool) -> int:
    finished = state.top.last
    if not once:
        return 0
    return 130 if finished is None else EXIT_CODES[finished.state]


async def _changes(setting: Setting, source: Worktree, say: Callable[[str], None]) -> AsyncIterator[frozenset[str]]:
    """Batches of changes, for ever. A workspace that is gone is waited for: moved away, it may be moved back."""
    watch_settings = setting.config.watch
    timing = Timing(watch_settings.debounce_ms, watch_settings.debounce_cap_ms)
    while True:
        try:
            stop = asyncio.Event()
            async with aclosing(
                watch(setting.workspace, territory=source, timing=timing, stop=stop, note=say)
            ) as batches:
                async for paths in batches:
                    yield paths
        except WorkspaceError as error:
            say(str(error))
        yield frozenset({EVERYTHING})
        while not setting.workspace.is_dir():  # noqa: ASYNC110  nobody tells when a folder comes back
            await asyncio.sleep(GONE_POLL_S)


def _press(key: str, dashboard: Dashboard, loop: Loop) -> None:
    now = time.time()
    if key == HELP_KEY:
        dashboard.toggle_help(now)
        return
    event = event_of(key, loop.state, now)
    if event is not None:
        loop.post(event)


@contextmanager
def _signals(loop: Loop) -> Iterator[list[int]]:
    """Ctrl-C and friends ask the loop to leave; the list holds the number if it was Ctrl-C."""
    interrupted: list[int] = []

    def leave(number: int) -> None:
        if number == signal.SIGINT:
            interrupted.append(number)
        loop.quit()

    running = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    for number in numbers:
        running.add_signal_handler(number, leave, number)
    try:
        yield interrupted
    finally:
        for number in numbers:
            running.remove_signal_handler(number)
