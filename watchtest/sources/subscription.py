"""The system's word on changed files, or our own looking where it will not give it.

On Linux each folder that matters is subscribed by itself: ignored ones are never entered, links not followed. When
folders come or go, all are subscribed anew. FSEvents and Windows watch a whole tree at once and need none of this.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from watchtest.core.events import EVERYTHING
from watchtest.errors import WorkspaceError
from watchtest.sources.streams import Poll, Source, WatcherFailed

IS_RECURSIVE = sys.platform != "linux"
TRIES = 10
MOST_SECONDS_TO_CLOSE = 5.0


class Territory(Protocol):
    """What of the workspace matters; a `Worktree` is one."""

    def folders(self) -> Sequence[str]: ...
    def learn(self, paths: Collection[str]) -> None: ...
    def is_left_out(self, path: str) -> bool: ...


@dataclass(slots=True)
class Subscription:
    """One source of changed paths, and the call in a thread that waits for it. Never two at a time."""

    root: str
    inode: int
    folders: frozenset[str]
    _source: Source
    _call: asyncio.Future[frozenset[str]] | None = None

    def is_about_folders(self, path: str) -> bool:
        """Whether this change may have made or taken a folder that should be subscribed."""
        if IS_RECURSIVE or isinstance(self._source, Poll):
            return False
        is_folder = path in self.folders or _is_folder(f"{self.root}/{path}")
        return is_folder or path == EVERYTHING or path.rpartition("/")[2] == ".gitignore"

    def covers(self, folders: Collection[str]) -> bool:
        return IS_RECURSIVE or isinstance(self._source, Poll) or self.folders == frozenset(folders)

    async def found_within(self, seconds: float, stop: asyncio.Event) -> frozenset[str]:
        """Changed paths, or none in that time. Raises WatcherFailed when this subscription is of no more use."""
        if self._call is None:
            self._call = asyncio.get_running_loop().run_in_executor(None, self._wait)
        stopping = asyncio.ensure_future(stop.wait())
        waiting: set[asyncio.Future[object]] = {self._call, stopping}  # type: ignore[arg-type]  # only waited for
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if not self._call.done():
            return frozenset()
        call, self._call = self._call, None
        return call.result()

    async def close(self) -> None:
        """Ends the call in its thread."""
        self._source.end()
        if self._call is not None:
            # What it found or met on its last breath is of no interest: its successor tells EVERYTHING.
            await asyncio.wait({self._call}, timeout=MOST_SECONDS_TO_CLOSE)
            if not self._call.done():
                return
            if not self._call.cancelled():
                self._call.exception()
        self._source.close()

    def _wait(self) -> frozenset[str]:
        try:
            return self._source.wait()
        except OSError as error:
            raise WatcherFailed(str(error)) from error


@dataclass(slots=True)
class Subscriber:
    """Makes subscriptions for one workspace; begins to poll, and says so, when the system will not have them."""

    root: str
    territory: Territory
    poll_s: float
    note: Callable[[str], None]
    is_polling: bool = False

    def subscribe(self) -> Subscription:
        """Subscribes to the folders as they are now; no change from its return on is missed. Blocks."""
        for _ in range(TRIES):
            inode = inode_of(self.root)
            folders = tuple(self.territory.folders())
            try:
                source = self._source(folders)
            except (FileNotFoundError, NotADirectoryError):
                continue  # a folder vanished since it was listed; or the workspace, which the next turn tells
            except (OSError, WatcherFailed) as error:
                self.poll_because(_reason(error))
                continue
            subscription = Subscription(self.root, inode, frozenset(folders), source)
            # A folder made after its parent was listed and before its parent was subscribed has told nobody.
            if subscription.covers(self.territory.folders()):
                return subscription
            source.close()
        self.poll_because("folders come and go too quickly to follow")
        return Subscription(self.root, inode_of(self.root), frozenset(), self._source(()))

    def poll_because(self, reason: str) -> None:
        if not self.is_polling:
            self.is_polling = True
            self.note(f"{self.root}: {reason}; looking for changes every {self.poll_s:g} s instead.")

    def _source(self, folders: Sequence[str]) -> Source:
        if self.is_polling:
            return Poll(self.root, self.territory.folders, self.poll_s)
        # Each is for its own systems, and need not even be installed on others.
        if IS_RECURSIVE:
            from watchtest.sources.streams import WholeTree

            return WholeTree(self.root)
        from watchtest.sources.inotify import Inotify

        return Inotify(self.root, folders)


def inode_of(root: str) -> int:
    """Tells whether another folder has taken the place of the workspace."""
    try:
        status = os.lstat(root)
    except OSError as error:
        raise WorkspaceError(
            f"{root}: the workspace is gone or cannot be reached ({error.strerror})",
            hint="Start watchtest again in the folder where it is now.",
        ) from error
    return status.st_ino


def _reason(error: Exception) -> str:
    if "watch limit" in str(error) or "No space left" in str(error):
        return "more folders than the system lets us watch (raise fs.inotify.max_user_watches with sysctl)"
    return f"the file watcher cannot be used ({error})"


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114  asked for each of many paths
