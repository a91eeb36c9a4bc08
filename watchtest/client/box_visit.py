"""A command of the user in the box, beside a watcher or without one. Sees to it that the box is filled before.

With a watcher, the box is the watcher's: it is waited for while it is being set up. Without one, the box is made,
brought to the code as it is now and set up here. A box that cannot be set up can still be visited, to see why.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from watchtest.boxes.environment import Environment
from watchtest.boxes.protocols import BoxProvider, ExecMode, StopSignal
from watchtest.client.status_file import is_locked, load
from watchtest.config.project import Project
from watchtest.core.model import Lane
from watchtest.errors import BoxError, ChannelLost, WatchtestError, WorkspaceError
from watchtest.wiring import build_environment, build_pipeline, build_worktree, choose_provider
from watchtest.workspace import manual_changes
from watchtest.workspace.folder import FOLDER, make_folder

POLL_S = 0.2
AT_WORK = ("starting", "syncing", "running")
Say = Callable[[str], None]


def visit(project: Project, argv: list[str], mode: ExecMode, say: Say) -> int:
    """Run a command in the box of the save lane; its exit code."""
    provider = visited_provider(project, say)
    try:
        environment = ready(project, provider, say)
        code = provider.execute(argv, environment.variables, environment.path_first, mode)
        if code == 0 and mode is ExecMode.ATTACHED:
            manual_changes.record(project.workspace, argv)
        elif mode is ExecMode.TERMINAL:
            manual_changes.record(project.workspace, ["(what was typed in `watchtest shell`)"])
        return code
    finally:
        provider.close()


def visited_provider(project: Project, say: Say) -> BoxProvider:
    """The box that a watcher uses, if there is one and nothing else was asked for."""
    engine = _box_of_watcher(project).get("engine")
    if project.config.box.engine == "auto" and engine in ("docker", "podman", "local"):
        box = project.config.box.model_copy(update={"engine": engine})
        project = replace(project, config=project.config.model_copy(update={"box": box}))
    return choose_provider(project, Lane.SAVE, say)


def ready(project: Project, provider: BoxProvider, say: Say) -> Environment:
    """Make the box ready for a command, and give what commands in it need."""
    environment = build_environment(project, provider)
    try:
        if not is_watched(project.workspace):
            _prepare(project, provider, say)
            return environment
    except ChannelLost as error:
        if not is_watched(project.workspace):
            raise
        say(f"a watcher has taken the box over ({error.message})")
    except WatchtestError as error:
        if provider.inspect() is None:
            raise
        say(f"the box is not as it should be: {error}")
        return environment
    _wait_for_the_watcher(project, provider, say)
    return environment


def _prepare(project: Project, provider: BoxProvider, say: Say) -> None:
    pipeline = build_pipeline(project, Lane.SAVE, provider, build_worktree(project))

    async def prepare() -> None:
        try:
            await pipeline.prepare(say, StopSignal())
        finally:
            await pipeline.box.disconnect()

    folder = project.workspace / FOLDER
    lock = FileLock(folder / "visit.lock", timeout=project.config.box.setup_timeout_s)
    try:
        make_folder(folder)
        lock.acquire()  # one at a time: a second agent would end the first in the middle of its setup
    except Timeout as error:
        raise BoxError("another command is still setting up the box", hint="wait for it, or end it") from error
    except OSError as error:
        raise WorkspaceError(f"{folder} cannot be written: {error.strerror}") from error
    try:
        asyncio.run(prepare())
    finally:
        lock.release()


def _wait_for_the_watcher(project: Project, provider: BoxProvider, say: Say) -> None:
    deadline = time.monotonic() + project.config.box.setup_timeout_s
    has_said = False
    while not provider.is_prepared():
        if not is_watched(project.workspace):
            raise BoxError("the watcher ended before the box was ready", hint="try again")
        if provider.inspect() is not None and _status(project).get("activity") not in AT_WORK:
            say("the watcher could not set up the box: going in as it is")
            return
        if time.monotonic() > deadline:
            raise BoxError("the watcher has not made a box yet", hint="look at `watchtest status`")
        if not has_said:
            say("waiting for the watcher to set up the box")
            has_said = True
        time.sleep(POLL_S)


def is_watched(workspace: Path) -> bool:
    """Whether a watcher lives there now, by its lock: it may not have written its status yet."""
    return is_locked(workspace / FOLDER / "lock") is True


def _status(project: Project) -> dict[str, Any]:
    """What the watcher last wrote; nothing yet, or nothing that can be read."""
    try:
        return load(project.workspace / FOLDER / "status.json")
    except WorkspaceError:
        return {}


def _box_of_watcher(project: Project) -> dict[str, Any]:
    box = _status(project).get("box") if is_watched(project.workspace) else None
    return box if isinstance(box, dict) else {}
