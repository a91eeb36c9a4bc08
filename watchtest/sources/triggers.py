"""What the watches tell the loop: saves, and what git says of the index and of HEAD. Each goes on for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

from watchtest.config.project import Project
from watchtest.core.events import EVERYTHING, Changed, Event, Hindered
from watchtest.core.model import Lane
from watchtest.errors import WorkspaceError
from watchtest.sources.file_watch import Timing, watch
from watchtest.sources.git import Git, GitError
from watchtest.sources.git_tree import GitTree
from watchtest.sources.git_watch import GitWatch
from watchtest.sources.worktree import Worktree

GONE_POLL_S = 1.0
LOCK_POLL_S = 0.02
LOCK_LIMIT_S = 10.0
"""So long a save waits for git to finish a checkout; a lock that a crash left behind must not hold it for ever."""


def watch_timing(project: Project) -> Timing:
    watch_settings = project.config.watch
    # Work may start before a save is surely over only where what comes after can end it.
    is_hasty = project.config.runner.on_change != "queue"
    return Timing(watch_settings.debounce_ms, watch_settings.debounce_cap_ms, is_hasty=is_hasty)


async def saves(project: Project, source: Worktree, say: Callable[[str], None]) -> AsyncIterator[Event]:
    """Batches of changes, for ever. A workspace that is gone is waited for: moved away, it may be moved back."""
    watch_settings = project.config.watch
    lock = _index_lock(project)
    while True:
        try:
            async with aclosing(
                watch(
                    project.workspace,
                    territory=source,
                    timing=watch_timing(project),
                    stop=asyncio.Event(),
                    note=say,
                    is_polling=watch_settings.poll,
                )
            ) as batches:
                async for paths in batches:
                    # A checkout in progress is one change: what it still writes is in the snapshot taken after it.
                    deadline = time.monotonic() + LOCK_LIMIT_S
                    while lock is not None and lock.exists() and time.monotonic() < deadline:  # noqa: ASYNC110  git tells nobody
                        await asyncio.sleep(LOCK_POLL_S)
                    yield Changed(Lane.SAVE, time.time(), paths)
        except WorkspaceError as error:
            say(str(error))
        yield Changed(Lane.SAVE, time.time(), frozenset({EVERYTHING}))
        while not project.workspace.is_dir():  # noqa: ASYNC110  nobody tells when a folder comes back
            await asyncio.sleep(GONE_POLL_S)


def _index_lock(project: Project) -> Path | None:
    try:
        return Git(project.workspace, project.environ).directory() / "index.lock"
    except GitError:
        return None  # not a repository


async def git_news(project: Project, trees: dict[Lane, GitTree]) -> AsyncIterator[Event]:
    """What is staged and what HEAD is, for the lanes that test them."""
    stage = trees.get(Lane.STAGE)
    git = Git(project.workspace, project.environ)
    while True:
        try:
            seen = GitWatch(git, stage.tree if stage is not None else lambda: "")
            async for news in seen.news():
                now = time.time()
                for lane in trees:
                    yield Hindered(lane, now, news.hindrance)
                if stage is not None and news.index is not None:
                    yield Changed(Lane.STAGE, now, frozenset({f"index {news.index[:12]}"}))
                if Lane.COMMIT in trees and news.head:
                    yield Changed(Lane.COMMIT, now, frozenset({f"HEAD {news.head[:12]}"}))
        except GitError as error:
            for lane in trees:
                yield Hindered(lane, time.time(), str(error))
        await asyncio.sleep(GONE_POLL_S)
