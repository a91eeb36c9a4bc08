"""Runs a command of the user in the box, with or without a watcher, and prepares the box first.

With a watcher, the box belongs to it, and the command waits until the watcher has set it up. Without one, the box is
created here, synced with the code as it is now and set up. If setup fails, commands still run, to find out why.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace

from watchtest.boxes.environment import Environment
from watchtest.boxes.protocols import BoxProvider, ExecMode, StopSignal
from watchtest.client.status_file import is_watched, last_status
from watchtest.client.watcher import AT_WORK
from watchtest.config import Project
from watchtest.core.model import Lane
from watchtest.errors import BoxError, ChannelLost, WatchtestError
from watchtest.wiring import (
    build_environment,
    build_pipeline,
    build_worktree,
    choose_engine,
    choose_provider,
    provider_of,
)
from watchtest.workspace import manual_changes
from watchtest.workspace.folder import FOLDER
from watchtest.workspace.lock import FolderLock

POLL_S = 0.2
Say = Callable[[str], None]


def run_in_box(project: Project, argv: list[str], mode: ExecMode, say: Say) -> int:
    """Run a command in the box of the save lane, and return its exit code."""
    with closing(provider_in_use(project, say)) as provider:
        environment = prepare_box(project, provider, say)
        if mode is ExecMode.TERMINAL:
            manual_changes.record_change(project.workspace, "(what was typed in `watchtest shell`)")
        else:
            manual_changes.record_command(project.workspace, argv)
        return provider.execute(argv, environment.variables, environment.path_first, mode)


def provider_in_use(project: Project, say: Say) -> BoxProvider:
    """Return the provider that the running watcher uses, unless the settings or a flag name another engine."""
    return choose_provider(_as_watched(project), Lane.SAVE, say)


def provider_for_reading(project: Project, say: Say) -> BoxProvider:
    """Return the same for a command that only reads in the box. It needs no consent, and starts no Python."""
    project = _with_box(_as_watched(project), python="")
    return provider_of(project, Lane.SAVE, choose_engine(project, say))


def _as_watched(project: Project) -> Project:
    box = last_status(project.workspace).get("box") if is_watched(project.workspace) else None
    engine = box.get("engine") if isinstance(box, dict) else None
    if project.config.box.engine == "auto" and engine in ("docker", "podman", "local"):
        return _with_box(project, engine=engine)
    return project


def _with_box(project: Project, **settings: str) -> Project:
    box = project.config.box.model_copy(update=settings)
    return replace(project, config=project.config.model_copy(update={"box": box}))


def prepare_box(project: Project, provider: BoxProvider, say: Say) -> Environment:
    """Create, fill and set up the box, or wait until the watcher has, and return the environment for commands."""
    environment = build_environment(project, provider)
    try:
        if not is_watched(project.workspace):
            _prepare(project, provider, say)
            return environment
    except ChannelLost as error:
        if not is_watched(project.workspace):
            raise
        say(f"a watcher has taken over the box ({error.message})")
    except WatchtestError as error:
        if provider.inspect() is None:
            raise
        say(f"the box is not fully set up: {error}")
        return environment
    _wait_for_watcher(project, provider, say)
    return environment


def _prepare(project: Project, provider: BoxProvider, say: Say) -> None:
    pipeline = build_pipeline(project, Lane.SAVE, provider, build_worktree(project))

    async def prepare() -> None:
        try:
            await pipeline.prepare(say, StopSignal())
        finally:
            await pipeline.box.disconnect()

    # A second agent would end the first one in the middle of its setup.
    lock = FolderLock(project.workspace / FOLDER, "visit.lock", project.config.box.setup_timeout_s)
    with ExitStack() as stack:
        try:
            stack.enter_context(lock)
        except TimeoutError as error:
            raise BoxError("another command is still setting up the box", hint="wait for it or end it") from error
        asyncio.run(prepare())


def _wait_for_watcher(project: Project, provider: BoxProvider, say: Say) -> None:
    deadline = time.monotonic() + project.config.box.setup_timeout_s
    has_reported = False
    while not provider.is_prepared():
        if not is_watched(project.workspace):
            raise BoxError("the watcher ended before the box was ready", hint="try again")
        if provider.inspect() is not None and last_status(project.workspace).get("activity") not in AT_WORK:
            say("the watcher could not set up the box; continuing with the box as it is")
            return
        if time.monotonic() > deadline:
            raise BoxError("the watcher has not created a box yet", hint="see `watchtest status`")
        if not has_reported:
            say("waiting for the watcher to set up the box")
            has_reported = True
        time.sleep(POLL_S)
