"""Reports when the working tree may have changed. There can be false alarms but no misses; the snapshot decides.

Not every system reports an overflow of its event queue, so a burst that could have caused one counts as EVERYTHING. So
do a sleep of the machine, a failed stream and any change to the set of folders.

On Linux each folder that matters is watched by itself: ignored folders are never entered, and links are not followed.
When folders appear or vanish, all are subscribed again. macOS and Windows watch the whole tree and need none of this.
Where the system cannot report changes, the watch falls back to polling.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from watchtest.config import Project
from watchtest.core.events import EVERYTHING, Event, SourceChanged
from watchtest.core.model import Lane
from watchtest.errors import WorkspaceError
from watchtest.sources.git import Git, GitError
from watchtest.sources.streams import ChangeStream, PollStream, StreamFailed, TreeStream
from watchtest.sources.worktree import Worktree, workspace_status

TICK_S = 1.0
SLEEP_DRIFT_S = 3.0
"""If the wall clock gains more than this on the monotonic clock, the machine was asleep."""
BURST = 2_000
FEW_PATHS = 4
"""A single save touches the file and perhaps a temporary file or a backup beside it."""
STEP_MS = 3
"""A stream reports events this long after the last of them; outside Linux it may take twice as long."""
IS_RECURSIVE = sys.platform != "linux"
SUBSCRIBE_ATTEMPTS = 10
CLOSE_TIMEOUT_S = 5.0
FAILURE_LIMIT = 3
FAILURE_WINDOW_S = 60.0
GONE_POLL_S = 1.0
LOCK_POLL_S = 0.02
LOCK_LIMIT_S = 10.0
"""How long a save waits for git to finish a checkout; a crash may have left the lock behind."""
ALL = frozenset({EVERYTHING})


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """Trailing debounce: a batch ends after a quiet period, or when the cap is reached.

    With `is_eager`, a batch of a few paths is reported at once; the verdict of a run on it is then held back until the
    rest of the debounce has passed (`LaneState.settle_s`).
    """

    debounce_ms: int
    debounce_cap_ms: int
    poll_s: float = 1.0
    is_eager: bool = False
    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic

    @property
    def settle_s(self) -> float:
        """How long after an eager start the verdict is held back: what is left of the debounce by then."""
        return max(self.debounce_ms - STEP_MS, 0) / 1000 if self.is_eager else 0.0

    def quiet_s(self, count: int) -> float:
        """Return how long no further event may arrive before a batch of `count` paths ends.

        The time counts from the report of the stream, which comes a step or two after the change.
        """
        if self.is_eager and count <= FEW_PATHS:
            return 0.0
        return max(self.debounce_ms - STEP_MS, 10) / 1000


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


async def watch(
    root: Path,
    *,
    scope: Worktree,
    timing: WatchTiming,
    stop: asyncio.Event,
    note: Callable[[str], None],
    is_polling: bool = False,
) -> AsyncGenerator[frozenset[str], None]:
    """Yield batches of changed paths, relative to the root; EVERYTHING is among them when anything may have changed.

    The first batch is {EVERYTHING} and means that the subscription is active: a snapshot taken after it misses nothing.
    Ends when `stop` is set. Raises WorkspaceError if the workspace is gone. Calls `note`, from any thread, with the
    reason when it has to poll. Close it (`contextlib.aclosing`) when leaving early.
    """
    watcher = _FileWatcher(root, scope, timing, note, is_polling)
    try:
        await watcher.subscribe()
        yield ALL
        while not stop.is_set():
            raw = await watcher.collect(stop)
            if not stop.is_set() and (batch := await watcher.filter_relevant(raw)):
                yield batch
    finally:
        await watcher.close()


class _FileWatcher:
    def __init__(
        self, root: Path, scope: Worktree, timing: WatchTiming, note: Callable[[str], None], is_polling: bool
    ) -> None:
        self._root = os.path.realpath(root)  # events name real paths
        self._scope = scope
        self._timing = timing
        self._subscriber = _Subscriber(self._root, scope, timing.poll_s, note, is_polling)
        self._subscription: Subscription | None = None
        self._offset_s = timing.wall() - timing.steady()
        self._failures: list[float] = []

    async def subscribe(self) -> None:
        old = self._subscription
        self._subscription = await asyncio.to_thread(self._subscriber.subscribe)
        if old is not None:
            await old.close()

    async def close(self) -> None:
        if self._subscription is not None:
            await self._subscription.close()

    async def collect(self, stop: asyncio.Event) -> frozenset[str]:
        """Wait for a change, then for a quiet period, and return the paths reported."""
        raw = frozenset[str]()
        deadline: float | None = None
        while not stop.is_set():
            left_s = TICK_S if deadline is None else deadline - self._timing.steady()
            quiet_s = self._timing.quiet_s(len(raw))
            found = await self._wait_for_changes(left_s if deadline is None else min(quiet_s, left_s), stop)
            raw |= found
            if self._has_slept():
                return raw | ALL
            if deadline is None:
                if self._is_replaced():
                    return raw | ALL
                if found:
                    deadline = self._timing.steady() + self._timing.debounce_cap_ms / 1000
            elif not found or self._timing.steady() >= deadline:
                return raw
        return raw

    async def filter_relevant(self, raw: frozenset[str]) -> frozenset[str]:
        """Return the paths that matter, and subscribe again if the set of folders has changed."""
        if self._is_replaced():
            await self.subscribe()
            return ALL
        assert self._subscription is not None
        relevant = await asyncio.to_thread(self._scope.relevant, raw - ALL)
        is_all = EVERYTHING in raw or len(raw) >= BURST
        if is_all or any(self._subscription.may_change_folders(path) for path in relevant):
            folders = await asyncio.to_thread(self._scope.folders)
            if not self._subscription.covers(folders):
                await self.subscribe()
                is_all = True
        return relevant | ALL if is_all else relevant

    async def _wait_for_changes(self, timeout_s: float, stop: asyncio.Event) -> frozenset[str]:
        assert self._subscription is not None
        try:
            return await self._subscription.wait_for_changes(max(timeout_s, 0.0), stop)
        except StreamFailed as error:
            now = self._timing.steady()
            self._failures = [at for at in self._failures if now - at < FAILURE_WINDOW_S] + [now]
            if len(self._failures) > FAILURE_LIMIT:
                self._subscriber.start_polling(f"the file watcher keeps failing ({error})")
            await self.subscribe()
            return ALL

    def _has_slept(self) -> bool:
        before, self._offset_s = self._offset_s, self._timing.wall() - self._timing.steady()
        return abs(self._offset_s - before) > SLEEP_DRIFT_S

    def _is_replaced(self) -> bool:
        """Tell whether another folder is now at the path of the workspace. Raises WorkspaceError if there is none."""
        return self._subscription is None or self._subscription.inode != _inode_of(self._root)


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
class _Subscriber:
    """Creates subscriptions for one workspace. Starts polling, with a note, if the system cannot provide them."""

    root: str
    scope: Worktree
    poll_s: float
    note: Callable[[str], None]
    is_polling: bool = False

    def subscribe(self) -> Subscription:
        """Subscribe to the folders as they are now; no change after it returns is missed. Blocks."""
        for _ in range(SUBSCRIBE_ATTEMPTS):
            inode = _inode_of(self.root)
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
        return Subscription(self.root, _inode_of(self.root), frozenset(), self._stream(()))

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


def _inode_of(root: str) -> int:
    """Return the inode of the workspace, which changes when another folder replaces it."""
    return workspace_status(Path(root), follow_symlinks=False).st_ino


def _reason(error: Exception) -> str:
    if "watch limit" in str(error) or "No space left" in str(error):
        return "more folders than the system can watch (raise fs.inotify.max_user_watches with sysctl)"
    return f"the file watcher cannot be used ({error})"
