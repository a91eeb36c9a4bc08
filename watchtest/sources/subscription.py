"""The system's word on changed files (`inotify` on Linux, `native` elsewhere), or our own looking (`poll`)."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from watchtest.core.events import EVERYTHING
from watchtest.errors import WorkspaceError
from watchtest.sources.native import WatcherFailed
from watchtest.sources.poll import Flag, Poll

if sys.platform == "linux":
    from watchtest.sources.inotify import Inotify as System
else:
    from watchtest.sources.native import Native as System

TRIES = 10
MOST_SECONDS_TO_CLOSE = 5.0

__all__ = ["Subscriber", "Subscription", "Territory", "WatcherFailed", "inode_of"]


class Source(Protocol):
    """Where changed paths come from: subscribed, or looked at for the first time, once it is made."""

    @property
    def is_by_folder(self) -> bool:
        """It has to be made anew when folders come or go."""

    def wait(self, stop: Flag) -> frozenset[str]:
        """Blocks until something changed; none: it was stopped."""

    def end(self) -> None:
        """Wake who waits: the flag is set."""

    def close(self) -> None:
        """Once nobody waits any more."""


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
    _is_ended: threading.Event = field(default_factory=threading.Event)
    _call: asyncio.Future[frozenset[str]] | None = None

    def is_about_folders(self, path: str) -> bool:
        """Whether this change may have made or taken a folder that should be subscribed."""
        if not self._source.is_by_folder:
            return False
        is_folder = path in self.folders or _is_folder(f"{self.root}/{path}")
        return is_folder or path == EVERYTHING or path.rpartition("/")[2] == ".gitignore"

    def covers(self, folders: Collection[str]) -> bool:
        return not self._source.is_by_folder or self.folders == frozenset(folders)

    async def found_within(self, seconds: float, stop: asyncio.Event) -> frozenset[str]:
        """Changed paths, or none in that time. Raises WatcherFailed when this subscription is of no more use."""
        if self._call is None:
            self._call = asyncio.get_running_loop().run_in_executor(None, self._source.wait, self._is_ended)
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
        """Ends the call in its thread, which sees it within a step."""
        self._is_ended.set()
        self._source.end()
        if self._call is not None:
            # What it found or met on its last breath is of no interest: its successor tells EVERYTHING.
            await asyncio.wait({self._call}, timeout=MOST_SECONDS_TO_CLOSE)
            if not self._call.done():
                return  # still in use; it goes with its thread
            if not self._call.cancelled():
                self._call.exception()
        self.discard()

    def discard(self) -> None:
        """Of a subscription in which nobody waits."""
        self._source.close()


@dataclass(slots=True)
class Subscriber:
    """Makes subscriptions for one workspace; begins to poll, and says so, when the system will not have them."""

    root: str
    territory: Territory
    step_ms: int
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
            except (OSError, WatcherFailed, UnicodeEncodeError) as error:
                self.poll_because(_reason(error))
                continue
            subscription = Subscription(self.root, inode, frozenset(folders), source)
            # A folder made after its parent was listed and before its parent was subscribed has told nobody.
            if subscription.covers(self.territory.folders()):
                return subscription
            subscription.discard()
        self.poll_because("folders come and go too quickly to follow")
        return Subscription(self.root, inode_of(self.root), frozenset(), self._source(()))

    def poll_because(self, reason: str) -> None:
        if not self.is_polling:
            self.is_polling = True
            self.note(f"{self.root}: {reason}; looking for changes every {self.poll_s:g} s instead.")

    def _source(self, folders: Sequence[str]) -> Source:
        if self.is_polling:
            return Poll(self.root, self.territory.folders, self.poll_s)
        return System(self.root, folders, self.step_ms)


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
    if isinstance(error, UnicodeEncodeError):
        return "a folder's name is not UTF-8, which the file watcher cannot follow"
    if "watch limit" in str(error) or "No space left" in str(error):
        return "more folders than the system lets us watch (raise fs.inotify.max_user_watches with sysctl)"
    return f"the file watcher cannot be used ({error})"


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114  asked for each of many paths
