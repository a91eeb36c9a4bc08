"""Tells when what is staged, or HEAD, has changed. Compares ids, not times: `git status` rewrites the index.

Looks at a handful of files: on Linux when the kernel says that something stirs in their folders, and every now and then
in any case; elsewhere a few times a second. While a lock, a rebase or a merge stands, it only says so; what changed
meanwhile is told once, at its end.

Sleeps until something stirs in a few folders, or for a while. A hint and no more: its user looks for itself.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from watchtest.sources.git import Git, GitError

if sys.platform == "linux":
    from watchtest.sources.inotify import Inotify

MOST_SECONDS_TO_CLOSE = 5.0


class Stirring:
    """Where the kernel wakes it, it sleeps for `rest_s` at most, and `look_s` once woken; elsewhere for `look_s`."""

    def __init__(self, look_s: float, rest_s: float) -> None:
        self._look_s = look_s
        self._rest_s = rest_s
        self._folders: tuple[str, ...] = ()
        self._source: Inotify | None = None
        self._call: asyncio.Future[frozenset[str]] | None = None

    async def subscribe(self, folders: Sequence[str]) -> None:
        """To be called before each look: what changes from then on ends the next sleep."""
        if tuple(folders) == self._folders and (self._source is not None or sys.platform != "linux"):
            return
        await self.close()
        self._folders = tuple(folders)
        if sys.platform == "linux":
            try:
                self._source = Inotify("", _relative(self._folders))
            except OSError:
                return  # gone for a moment, or no more watches to be had: it looks more often then

    async def sleep(self) -> None:
        if self._source is None:
            await asyncio.sleep(self._look_s)
            return
        if self._call is None:
            self._call = asyncio.get_running_loop().run_in_executor(None, self._source.wait)
        await asyncio.wait({self._call}, timeout=self._rest_s)
        if self._call.done():
            call, self._call = self._call, None
            if not call.result().isdisjoint(_relative(self._folders)):
                self._folders = ()  # one of them is gone, and another may have taken its place
            await asyncio.sleep(self._look_s)  # what stirs once mostly stirs again

    async def close(self) -> None:
        source, call = self._source, self._call
        self._source, self._call, self._folders = None, None, ()
        if source is None:
            return
        source.end()
        if call is not None:
            await asyncio.wait({call}, timeout=MOST_SECONDS_TO_CLOSE)
            if not call.done():
                return  # still in use; it goes with its thread
            call.exception()
        source.close()


def _relative(folders: Sequence[str]) -> list[str]:
    return [folder.removeprefix("/") for folder in folders]


LOOK_EVERY_S = 0.1
LOOK_AT_REST_S = 2.0
ASK_EVERY_S = 10.0
"""So often the ids are asked for although no file seems to have changed."""
HINDRANCES = {
    "index.lock": "git is at work (index.lock)",
    "rebase-merge": "a rebase stands",
    "rebase-apply": "a rebase stands",
    "MERGE_HEAD": "a merge stands",
    "CHERRY_PICK_HEAD": "a cherry-pick stands",
    "REVERT_HEAD": "a revert stands",
    "HEAD.lock": "git is at work (HEAD.lock)",
}
LOOKED_AT = ("index", "HEAD", "packed-refs", "logs/HEAD")
Signature = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class GitNews:
    """What is different now. An id is None where it has not changed; `hindrance` is always what holds now."""

    index: str | None = None
    head: str | None = None
    hindrance: str = ""


class GitWatch:
    """One repository, as seen from one worktree. `index` gives the tree id of what is staged."""

    def __init__(self, git: Git, index: Callable[[], str]) -> None:
        self._git = git
        self._index_of = index
        self._directory = git.directory()
        self._common = git.common()
        # Made once: putting a path together costs more than looking at it.
        self._head_file = self._directory / "HEAD"
        self._files = [*(self._directory / name for name in LOOKED_AT), self._common / "packed-refs"]
        self._standing = {str(self._directory / name): words for name, words in HINDRANCES.items()}
        self._head_read = b""
        self._branch = self._head_file
        self._index: str | None = None
        self._head: str | None = None

    async def news(self) -> AsyncIterator[GitNews]:
        """The state at first, then each change, for ever."""
        seen: Signature = ()
        told = ""
        asked_at = float("-inf")
        loop = asyncio.get_running_loop()
        stirring = Stirring(LOOK_EVERY_S, LOOK_AT_REST_S)
        try:
            while True:
                await stirring.subscribe(self._folders())
                found = self._signature()
                standing = self._hindrance()
                is_due = loop.time() - asked_at > ASK_EVERY_S
                if standing != told:
                    told = standing
                    yield GitNews(hindrance=standing)
                if not standing and (found != seen or is_due):
                    news = await asyncio.to_thread(self._ask)
                    # Only what was still so afterwards is believed: git may have begun anew while we asked.
                    if self._signature() == found and not self._hindrance():
                        seen, asked_at = found, loop.time()
                        if news is not None and (different := self._told(news)) != GitNews():
                            yield different
                await stirring.sleep()
        finally:
            await stirring.close()

    def _ask(self) -> tuple[str, str] | None:
        try:
            return self._index_of(), self._git.head().commit or ""
        except GitError:
            return None  # unmerged paths, or caught in the middle: the next change, or the next asking, tells

    def _told(self, now: tuple[str, str]) -> GitNews:
        index, head = now
        news = GitNews(index if index != self._index else None, head if head != self._head else None)
        self._index, self._head = index, head
        return news

    def _folders(self) -> list[str]:
        """Of all files that are looked at; nothing can appear in one that is not there without its parent telling."""
        wanted = (self._directory, self._directory / "logs", self._common, self._branch_file().parent)
        found = {str(next(folder for folder in (each, *each.parents) if folder.is_dir())) for each in wanted}
        return sorted(found)

    def _signature(self) -> Signature:
        return tuple(map(_look_of, (*self._files, self._branch_file())))

    def _branch_file(self) -> Path:
        try:
            head = self._head_file.read_bytes()
        except OSError:
            return self._head_file
        if head != self._head_read:
            self._head_read = head
            text = os.fsdecode(head)
            reference = text.removeprefix("ref: ").strip()
            self._branch = self._common / reference if text.startswith("ref: ") else self._head_file
        return self._branch

    def _hindrance(self) -> str:
        return next((words for path, words in self._standing.items() if os.path.lexists(path)), "")


def hindrance(directory: Path) -> str:
    """Why git's state is not to be looked at now; "" if it is."""
    return next((words for name, words in HINDRANCES.items() if os.path.lexists(directory / name)), "")


def _look_of(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
