"""The working tree as snapshots. Reads the workspace and writes nothing into it; follows no link out of it.

A snapshot holds every file as it was at one moment of its taking, and a listing that was the same at its end: folders
that changed meanwhile are listed again. What cannot be in it is named with the reason, never skipped in silence.
Two snapshots with one id hold the same files for git; they may still differ in empty folders and in modes other than
the owner's x bit, so a mirror compares entries, not ids.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from watchtest.core.events import EVERYTHING
from watchtest.core.model import Entry, Kind, LeftOut, Snapshot
from watchtest.errors import SourceMoved, WorkspaceError
from watchtest.sources.entry import read_file, read_link
from watchtest.sources.git_ignore import IGNORE_FILE
from watchtest.sources.head import Standing
from watchtest.sources.ignore import Ignore
from watchtest.sources.tree_id import blob_id
from watchtest.sources.walk import Folder, Walk

MAX_FILE_BYTES = 512 * 1024 * 1024
ROUNDS = 10
"""How often folders that change under our eyes are listed again; after that the watcher's next event must help."""


class Worktree:
    """One workspace. Callers on other threads wait for one another; only `is_left_out` never waits."""

    def __init__(
        self,
        root: Path,
        *,
        ignore: Sequence[str],
        include: Sequence[str],
        max_file_bytes: int = MAX_FILE_BYTES,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root.absolute()
        self._check_root()
        self._lock = threading.RLock()
        self._ignore = Ignore(self.root, ignore, include, os.environ if environ is None else environ)
        self._walk = Walk(str(self.root), self._ignore, max_file_bytes)
        self._standing = Standing(self._ignore)
        self._top: Folder | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of how paths are chosen: empty when git decides, or there is no repository."""
        return self._ignore.notes

    def snapshot(self, hint: frozenset[str] | None = None) -> Snapshot:
        """The working tree now. Blocks.

        `hint`: the only paths that may have changed since the last snapshot, as the watcher names them. Then only
        their folders are looked at. Without a hint all files are; with EVERYTHING in it all answers of git are asked
        for anew as well.
        """
        with self._lock:
            self._check_root()
            top, is_new = self._listed_top()
            if hint is not None and EVERYTHING in hint:
                self._ignore.forget()
            if self._ignore.refresh() or is_new or hint is None or EVERYTHING in hint:
                todo = {top.path: top}
                is_deep = True
            else:
                todo = self._places(top, hint)
                is_deep = False
            self._bring_up_to_date(top, todo, is_deep)
            return self._taken(top)

    def read(self, path: str, expect: Entry) -> bytes:
        """The content of a file, or the target of a link, if it is still what the snapshot says."""
        where = str(self.root / path)
        try:
            content = read_link(where) if expect.kind is Kind.SYMLINK else read_file(where)
        except OSError as error:
            raise SourceMoved(f"{path}: changed since the snapshot ({error.strerror or error})") from error
        if len(content) != expect.size or blob_id(content) != expect.digest:
            raise SourceMoved(f"{path}: changed since the snapshot")
        return content

    # -- for the watcher -------------------------------------------------------------------------------

    def folders(self) -> tuple[str, ...]:
        """Every folder whose changes matter, relative to the root, which is "". Blocks."""
        with self._lock:
            self._check_root()
            self._ignore.refresh()
            return self._walk.folders()

    def learn(self, paths: Collection[str]) -> None:
        """Decides about paths that may be new, so that `is_left_out` knows them. Blocks."""
        with self._lock:
            self._ignore.refresh()
            self._ignore.learn(paths)

    def is_left_out(self, path: str) -> bool:
        """Whether a change of this path can be passed over; when in doubt it cannot. Never blocks."""
        return self._ignore.is_left_out(path)

    # -- how -------------------------------------------------------------------------------------------

    def _check_root(self) -> None:
        try:
            status = self.root.stat()
        except OSError as error:
            raise WorkspaceError(
                f"{self.root}: the workspace is gone or cannot be reached ({error.strerror})",
                hint="Start watchtest again in the folder where it is now.",
            ) from error
        if not stat.S_ISDIR(status.st_mode):
            raise WorkspaceError(f"{self.root}: not a folder", hint="Name the folder that holds the project.")

    def _listed_top(self) -> tuple[Folder, bool]:
        inode = self.root.stat().st_ino
        if self._top is not None and self._top.inode == inode:
            return self._top, False
        self._top = Folder("", inode, parent=None, is_passage=False)
        return self._top, True

    def _places(self, top: Folder, hint: frozenset[str]) -> dict[str, Folder]:
        """The folders to list again: those that hold a changed path, and those that are one, with all below."""
        todo = {folder.path: folder for folder in top.all() if folder.is_racy}
        for path in hint:
            folder = top.nearest(path)
            todo[folder.path] = folder
            if path.rpartition("/")[2] == IGNORE_FILE:
                todo |= {below.path: below for below in folder.all()}
            changed = folder.folders.get(f"{path}/")
            if changed is not None:
                todo |= {below.path: below for below in changed.all()}
        return todo

    def _bring_up_to_date(self, top: Folder, todo: dict[str, Folder], is_deep: bool) -> None:
        for _ in range(ROUNDS):
            git = self._ignore.git
            todo = self._walk.scan(todo, is_deep)
            is_deep = self._ignore.git is not git  # git has just refused to go on, or begun: every answer is new
            if is_deep:
                todo = {top.path: top}
            if not todo:
                return

    def _taken(self, top: Folder) -> Snapshot:
        folders = top.all()
        for folder in reversed(folders):
            folder.settle()
        entries: dict[str, Entry] = {}
        left_out: dict[str, str] = {}
        for folder in folders:
            entries.update(folder.entries)
            left_out.update(folder.left_out)
        snapshot = Snapshot(
            id=top.tree,
            entries=MappingProxyType(entries),
            left_out=tuple(LeftOut(path, reason) for path, reason in sorted(left_out.items())),
        )
        return self._standing.added_to(snapshot)
