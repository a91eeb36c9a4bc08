"""Endless streams of events for the loop: saves in the workspace, and changes of the index and HEAD."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

from watchtest.config import Project
from watchtest.core.events import EVERYTHING, Event, SourceBlocked, SourceChanged
from watchtest.core.model import Lane
from watchtest.errors import WorkspaceError
from watchtest.sources.file_watch import WatchTiming, watch
from watchtest.sources.git import Git, GitError
from watchtest.sources.git_tree import GitTree
from watchtest.sources.git_watch import GitWatch
from watchtest.sources.worktree import Worktree

GONE_POLL_S = 1.0
LOCK_POLL_S = 0.02
LOCK_LIMIT_S = 10.0
"""How long a save waits for git to finish a checkout; a crash may have left the lock behind."""


def watch_timing(project: Project) -> WatchTiming:
    watch_settings = project.config.watch
    # A run may only start before the save is certainly complete if a later change can end it.
    is_eager = project.config.runner.on_change != "queue"
    return WatchTiming(watch_settings.debounce_ms, watch_settings.debounce_cap_ms, is_eager=is_eager)


async def save_events(project: Project, source: Worktree, say: Callable[[str], None]) -> AsyncIterator[Event]:
    """Yield batches of changes without end. If the workspace vanishes, wait until it comes back."""
    lock = _index_lock(project)
    while True:
        try:
            async with aclosing(
                watch(
                    project.workspace,
                    scope=source,
                    timing=watch_timing(project),
                    stop=asyncio.Event(),
                    note=say,
                    is_polling=project.config.watch.poll,
                )
            ) as batches:
                async for paths in batches:
                    # A checkout counts as one change: wait for its end, so that the snapshot contains all of it.
                    deadline = time.monotonic() + LOCK_LIMIT_S
                    while lock is not None and lock.exists() and time.monotonic() < deadline:  # noqa: ASYNC110  there is no event
                        await asyncio.sleep(LOCK_POLL_S)
                    yield SourceChanged(Lane.SAVE, time.time(), paths)
        except WorkspaceError as error:
            say(str(error))
        yield SourceChanged(Lane.SAVE, time.time(), frozenset({EVERYTHING}))
        while not project.workspace.is_dir():  # noqa: ASYNC110  there is no event
            await asyncio.sleep(GONE_POLL_S)


def _index_lock(project: Project) -> Path | None:
    try:
        return Git(project.workspace, project.environ).directory() / "index.lock"
    except GitError:
        return None  # not a repository


async def git_events(project: Project, trees: dict[Lane, GitTree]) -> AsyncIterator[Event]:
    """Yield changes of the index and of HEAD, without end, for the lanes that test them."""
    stage = trees.get(Lane.STAGE)
    git = Git(project.workspace, project.environ)
    while True:
        try:
            watch = GitWatch(git, stage.tree if stage is not None else lambda: "")
            async for change in watch.changes():
                now = time.time()
                for lane in trees:
                    yield SourceBlocked(lane, now, change.blocker)
                if stage is not None and change.index is not None:
                    yield SourceChanged(Lane.STAGE, now, frozenset({f"index {change.index[:12]}"}))
                if Lane.COMMIT in trees and change.head:
                    yield SourceChanged(Lane.COMMIT, now, frozenset({f"HEAD {change.head[:12]}"}))
        except GitError as error:
            for lane in trees:
                yield SourceBlocked(lane, time.time(), str(error))
        await asyncio.sleep(GONE_POLL_S)
