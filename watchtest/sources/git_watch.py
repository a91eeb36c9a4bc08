"""Reports when the index or HEAD has changed. Compares ids, not times, because `git status` rewrites the index.

It checks a handful of files: on Linux when inotify reports a change in their folders and every few seconds anyway,
elsewhere several times a second. While a lock exists or a rebase or merge is in progress, it only reports that; the
changes made in the meantime are reported once, at its end.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from watchtest.config import Project
from watchtest.core.events import Event, SourceBlocked, SourceChanged
from watchtest.core.model import Lane
from watchtest.sources.entry import read_file
from watchtest.sources.file_watch import Subscription
from watchtest.sources.git import Git, GitError, UnmergedIndex
from watchtest.sources.git_tree import GitTree
from watchtest.sources.streams import StreamFailed

if sys.platform == "linux":
    from watchtest.sources.inotify import InotifyStream


class FolderWakeup:
    """Sleeps until something may have changed in a few folders. Only a hint: the caller checks for itself.

    With inotify it sleeps until the next event, at most `idle_s`, and then for `check_s`; otherwise for `check_s`. A
    stream that fails is replaced.
    """

    def __init__(self, check_s: float, idle_s: float) -> None:
        self._check_s = check_s
        self._idle_s = idle_s
        self._folders: tuple[str, ...] = ()
        self._subscription: Subscription | None = None

    async def subscribe(self, folders: Sequence[str]) -> None:
        """Watch these folders. Call this before each check, so that any later change ends the next sleep."""
        if tuple(folders) == self._folders and (self._subscription is not None or sys.platform != "linux"):
            return
        await self.close()
        self._folders = tuple(folders)
        if sys.platform == "linux":
            with suppress(OSError):  # a folder is gone, or the limit of watches is reached: check more often instead
                stream = InotifyStream("", _relative(self._folders))
                self._subscription = Subscription("", 0, frozenset(), stream)

    async def sleep(self) -> None:
        if self._subscription is None:
            await asyncio.sleep(self._check_s)
            return
        try:
            changed = await self._subscription.wait_for_changes(self._idle_s, asyncio.Event())
        except StreamFailed:
            changed = frozenset(_relative(self._folders))
        if not changed.isdisjoint(_relative(self._folders)):
            self._folders = ()  # a folder is gone, and may have been replaced: subscribe again
        if changed:
            await asyncio.sleep(self._check_s)  # one change is usually followed by more

    async def close(self) -> None:
        subscription, self._subscription, self._folders = self._subscription, None, ()
        if subscription is not None:
            await subscription.close()


def _relative(folders: Sequence[str]) -> list[str]:
    return [folder.removeprefix("/") for folder in folders]


CHECK_INTERVAL_S = 0.1
IDLE_CHECK_INTERVAL_S = 2.0
QUERY_INTERVAL_S = 10.0
RETRY_S = 1.0
"""How often the ids are read even if no file seems to have changed."""
BLOCKERS = {
    "index.lock": "git is busy (index.lock)",
    "rebase-merge": "a rebase is in progress",
    "rebase-apply/applying": "`git am` is in progress",
    "rebase-apply": "a rebase is in progress",
    "MERGE_HEAD": "a merge is in progress",
    "CHERRY_PICK_HEAD": "a cherry-pick is in progress",
    "REVERT_HEAD": "a revert is in progress",
    "HEAD.lock": "git is busy (HEAD.lock)",
}
STALE_LOCK_S = 30.0
"""A lock this old was probably left by a git that crashed."""
WATCHED_FILES = ("index", "HEAD", "packed-refs", "logs/HEAD")
Signature = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class GitChange:
    """What has changed. An id is None if it has not changed; `blocker` and `conflict` are always the current ones."""

    index: str | None = None
    head: str | None = None
    blocker: str = ""
    """Why neither the index nor HEAD can be trusted."""
    conflict: str = ""
    """Why the index has no tree."""


@dataclass(frozen=True, slots=True)
class _Ids:
    index: str | None
    head: str
    conflict: str


class GitWatch:
    """Watches one worktree of a repository. `index_tree` returns the tree id of the index."""

    def __init__(self, git: Git, index_tree: Callable[[], str]) -> None:
        self._git = git
        self._index_tree = index_tree
        self._directory = git.directory()
        self._common = git.common()
        # Built once: joining a path takes longer than checking it.
        self._head_file = self._directory / "HEAD"
        self._files = [*(self._directory / name for name in WATCHED_FILES), self._common / "packed-refs"]
        self._head_content = b""
        self._branch = self._head_file
        self._index: str | None = None
        self._head: str | None = None
        self._conflict = ""

    async def changes(self) -> AsyncIterator[GitChange]:
        """Yield the state as the first change, then each further change, without end."""
        last: Signature = ()
        reported = ""
        queried_at = float("-inf")
        loop = asyncio.get_running_loop()
        wakeup = FolderWakeup(CHECK_INTERVAL_S, IDLE_CHECK_INTERVAL_S)
        try:
            while True:
                await wakeup.subscribe(self._folders())
                signature = self._signature()
                current = blocker(self._directory)
                is_due = loop.time() - queried_at > QUERY_INTERVAL_S
                if current != reported:
                    reported = current
                    yield GitChange(blocker=current, conflict=self._conflict)
                if not current and (signature != last or is_due):
                    ids = await asyncio.to_thread(self._read_ids)
                    # Trust the ids only if nothing has changed since: git may have started again in the meantime.
                    if self._signature() == signature and not blocker(self._directory):
                        last, queried_at = signature, loop.time()
                        if ids is not None and (change := self._change(ids)) is not None:
                            yield change
                await wakeup.sleep()
        finally:
            await wakeup.close()

    def _read_ids(self) -> _Ids | None:
        try:
            head = self._git.head().commit or ""
            try:
                return _Ids(self._index_tree(), head, "")
            except UnmergedIndex as error:
                return _Ids(None, head, f"{error.message}; resolve them and `git add` them")
        except GitError:
            return None  # an operation is in progress, or something is broken: the next change or query may succeed

    def _change(self, ids: _Ids) -> GitChange | None:
        index = ids.index if ids.index != self._index else None
        head = ids.head if ids.head != self._head else None
        if index is None and head is None and ids.conflict == self._conflict:
            return None
        self._index, self._head, self._conflict = ids.index or self._index, ids.head, ids.conflict
        return GitChange(index, head, conflict=ids.conflict)

    def _folders(self) -> list[str]:
        """Return the folders of all watched files; the nearest existing parent stands in for a missing folder."""
        wanted = (self._directory, self._directory / "logs", self._common, self._branch_file().parent)
        found = {str(next(folder for folder in (each, *each.parents) if folder.is_dir())) for each in wanted}
        return sorted(found)

    def _signature(self) -> Signature:
        return tuple(map(_stat_of, (*self._files, self._branch_file())))

    def _branch_file(self) -> Path:
        try:
            head = read_file(str(self._head_file))
        except OSError:
            return self._head_file  # gone; or a link, as very old versions of git made it
        if head != self._head_content:
            self._head_content = head
            text = os.fsdecode(head)
            reference = text.removeprefix("ref: ").strip()
            self._branch = self._common / reference if text.startswith("ref: ") else self._head_file
        return self._branch


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
                    conflict = change.conflict if lane is Lane.STAGE else ""
                    yield SourceBlocked(lane, now, change.blocker or conflict)
                if stage is not None and (change.index is not None or change.conflict):
                    yield SourceChanged(Lane.STAGE, now, frozenset({f"index {(change.index or 'in conflict')[:12]}"}))
                if Lane.COMMIT in trees and change.head:
                    yield SourceChanged(Lane.COMMIT, now, frozenset({f"HEAD {change.head[:12]}"}))
        except GitError as error:
            for lane in trees:
                yield SourceBlocked(lane, time.time(), str(error))
        await asyncio.sleep(RETRY_S)


def blocker(directory: Path) -> str:
    """Return why the state of the repository cannot be trusted at the moment, or ""."""
    for name, words in BLOCKERS.items():
        with suppress(OSError):
            age_s = time.time() - os.lstat(f"{directory}/{name}").st_mtime
            if name.endswith(".lock") and age_s > STALE_LOCK_S:
                return f"{name} is {STALE_LOCK_S:.0f} s old; if no git command is running, delete {directory / name}"
            return words
    return ""


def _stat_of(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
