"""Subscribes to the changes of a workspace, and falls back to polling where the system cannot report them.

On Linux each folder that matters is watched by itself: ignored folders are never entered, and links are not followed.
When folders appear or vanish, all are subscribed again. macOS and Windows watch the whole tree and need none of this.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from watchtest.core.events import EVERYTHING
from watchtest.sources.streams import ChangeStream, PollStream, StreamFailed, TreeStream
from watchtest.sources.worktree import Worktree, workspace_status

IS_RECURSIVE = sys.platform != "linux"
ATTEMPTS = 10
CLOSE_TIMEOUT_S = 5.0


@dataclass(slots=True)
class Subscription:
    """A stream of changed paths, and the call in a thread that waits for it. Only one may be open at a time."""

    root: str
    inode: int
    folders: frozenset[str]
    _stream: ChangeStream
    _call: asyncio.Future[frozenset[str]] | None = None

    def may_change_folders(self, path: str) -> bool:
        """Tell whether this change may have added or removed a folder that has to be watched."""
        if IS_RECURSIVE or isinstance(self._stream, PollStream):
            return False
        if path in self.folders or path == EVERYTHING or path.rpartition("/")[2] == ".gitignore":
            return True
        file = f"{self.root}/{path}"
        return os.path.isdir(file) and not os.path.islink(file)  # noqa: PTH112, PTH114  called for many paths

    def covers(self, folders: Collection[str]) -> bool:
        return IS_RECURSIVE or isinstance(self._stream, PollStream) or self.folders == frozenset(folders)

    async def wait_for_changes(self, timeout_s: float, stop: asyncio.Event) -> frozenset[str]:
        """Return changed paths, or none after the timeout. Raises StreamFailed if it has to be replaced."""
        if self._call is None:
            self._call = asyncio.get_running_loop().run_in_executor(None, self._wait)
        stopping = asyncio.ensure_future(stop.wait())
        waiting: set[asyncio.Future[object]] = {self._call, stopping}  # type: ignore[arg-type]  # only waited for
        try:
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if not self._call.done():
            return frozenset()
        call, self._call = self._call, None
        return call.result()

    async def close(self) -> None:
        """End the call in its thread and close the stream."""
        self._stream.end()
        if self._call is not None:
            # Its last result or error is irrelevant: the next subscription starts with EVERYTHING.
            await asyncio.wait({self._call}, timeout=CLOSE_TIMEOUT_S)
            if not self._call.done():
                return
            if not self._call.cancelled():
                self._call.exception()
        self._stream.close()

    def _wait(self) -> frozenset[str]:
        try:
            return self._stream.wait()
        except OSError as error:
            raise StreamFailed(str(error)) from error


@dataclass(slots=True)
class Subscriber:
    """Creates subscriptions for one workspace. Starts polling, with a note, if the system cannot provide them."""

    root: str
    scope: Worktree
    poll_s: float
    note: Callable[[str], None]
    is_polling: bool = False

    def subscribe(self) -> Subscription:
        """Subscribe to the folders as they are now; no change after it returns is missed. Blocks."""
        for _ in range(ATTEMPTS):
            inode = inode_of(self.root)
            folders = tuple(self.scope.folders())
            try:
                stream = self._stream(folders)
            except (FileNotFoundError, NotADirectoryError):
                continue  # a folder has vanished, or the workspace, for which the next attempt raises an error
            except (OSError, StreamFailed) as error:
                self.start_polling(_reason(error))
                continue
            subscription = Subscription(self.root, inode, frozenset(folders), stream)
            # A folder created after its parent was listed but before it was subscribed is not reported.
            if subscription.covers(self.scope.folders()):
                return subscription
            stream.close()
        self.start_polling("folders appear and vanish too quickly to follow")
        return Subscription(self.root, inode_of(self.root), frozenset(), self._stream(()))

    def start_polling(self, reason: str) -> None:
        if not self.is_polling:
            self.is_polling = True
            self.note(f"{self.root}: {reason}; checking for changes every {self.poll_s:g} s instead.")

    def _stream(self, folders: Sequence[str]) -> ChangeStream:
        if self.is_polling:
            return PollStream(self.root, self.scope.folders, self.poll_s)
        if IS_RECURSIVE:
            return TreeStream(self.root)
        from watchtest.sources.inotify import InotifyStream  # installed on Linux only

        return InotifyStream(self.root, folders)


def inode_of(root: str) -> int:
    """Return the inode of the workspace, which changes when another folder replaces it."""
    return workspace_status(Path(root), follow_symlinks=False).st_ino


def _reason(error: Exception) -> str:
    if "watch limit" in str(error) or "No space left" in str(error):
        return "more folders than the system can watch (raise fs.inotify.max_user_watches with sysctl)"
    return f"the file watcher cannot be used ({error})"
