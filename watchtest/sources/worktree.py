"""Takes snapshots of the working tree. Reads the workspace, writes nothing into it and follows no link out of it.

Each file in a snapshot is one version, never a mix of two, and the listing was still the same at the end: folders that
changed in the meantime are listed again. Files that are left out are reported with the reason, never skipped silently.
Two snapshots with the same id contain the same files for git. They may still differ in empty folders and in modes other
than the owner's x bit, so a mirror compares entries, not ids.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from watchtest.core.events import EVERYTHING
from watchtest.core.model import Entry, EntryKind, ExcludedPath, Snapshot
from watchtest.errors import SourceMoved, WorkspaceError
from watchtest.sources.entry import read_file, read_link
from watchtest.sources.git import GITLINK, SHA1_LENGTH, Git, GitError
from watchtest.sources.git_ignore import IGNORE_FILE
from watchtest.sources.git_objects import tree_rows
from watchtest.sources.ignore import PathFilter
from watchtest.sources.tree_id import blob_id, git_mode
from watchtest.sources.walk import Folder, TreeWalk

MAX_FILE_BYTES = 512 * 1024 * 1024
ROUNDS = 10
"""How often folders that keep changing are listed again; after that, the watcher's next event updates them."""


def workspace_status(root: Path, *, follow_symlinks: bool = True) -> os.stat_result:
    """Return the status of the workspace's folder. Raises WorkspaceError if there is none."""
    try:
        return root.stat(follow_symlinks=follow_symlinks)
    except OSError as error:
        raise WorkspaceError(
            f"{root}: the workspace is gone or cannot be reached ({error.strerror})",
            hint="Start watchtest again in the folder where it is now.",
        ) from error


class Worktree:
    """The working tree of one workspace. Thread-safe: calls wait for one another."""

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
        self._ignore = PathFilter(self.root, ignore, include, os.environ if environ is None else environ)
        self._walk = TreeWalk(str(self.root), self._ignore, max_file_bytes)
        self._head = HeadTracker(self._ignore)
        self._top: Folder | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings for the user if git cannot be used in a repository; otherwise empty."""
        return self._ignore.notes

    def snapshot(self, hint: frozenset[str] | None = None) -> Snapshot:
        """Return the working tree as it is now. Blocks.

        `hint` holds the only paths that may have changed since the last snapshot; then only their folders are listed.
        Without a hint all folders are listed. With EVERYTHING in it, git also decides again about every path.
        """
        with self._lock:
            self._check_root()
            top, is_new = self._current_top()
            if hint is not None and EVERYTHING in hint:
                self._ignore.forget()
            if self._ignore.refresh() or is_new or hint is None or EVERYTHING in hint:
                todo = {top.path: top}
                is_deep = True
            else:
                todo = self._folders_to_list(top, hint)
                is_deep = False
            self._rescan_until_stable(top, todo, is_deep)
            return self._build_snapshot(top)

    def read(self, path: str, expect: Entry) -> bytes:
        """Return the content of a file or the target of a link. Raises SourceMoved if the snapshot has another."""
        absolute = str(self.root / path)
        try:
            content = read_link(absolute) if expect.kind is EntryKind.SYMLINK else read_file(absolute)
        except OSError as error:
            raise SourceMoved(f"{path}: changed since the snapshot ({error.strerror or error})") from error
        if len(content) != expect.size or blob_id(content) != expect.digest:
            raise SourceMoved(f"{path}: changed since the snapshot")
        return content

    # -- for the watcher -------------------------------------------------------------------------------

    def folders(self) -> tuple[str, ...]:
        """Return every folder whose changes matter, relative to the root, which itself is "". Blocks."""
        with self._lock:
            self._check_root()
            self._ignore.refresh()
            return self._walk.folders()

    def relevant(self, paths: Collection[str]) -> frozenset[str]:
        """Return the changed paths that matter: all except those known to be left out. Blocks."""
        with self._lock:
            self._ignore.refresh()
            self._ignore.learn(paths)
            return frozenset(path for path in paths if not self._ignore.is_left_out(path))

    # -- internals -------------------------------------------------------------------------------------

    def _check_root(self) -> None:
        if not stat.S_ISDIR(workspace_status(self.root).st_mode):
            raise WorkspaceError(f"{self.root}: not a folder", hint="Give the folder of the project.")

    def _current_top(self) -> tuple[Folder, bool]:
        inode = self.root.stat().st_ino
        if self._top is not None and self._top.inode == inode:
            return self._top, False
        self._top = Folder("", inode, parent=None, is_passage=False)
        return self._top, True

    def _folders_to_list(self, top: Folder, hint: frozenset[str]) -> dict[str, Folder]:
        """Return the folders to list again: those that contain a changed path, and changed folders with all below."""
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

    def _rescan_until_stable(self, top: Folder, todo: dict[str, Folder], is_deep: bool) -> None:
        for _ in range(ROUNDS):
            git = self._ignore.git
            todo = self._walk.scan(todo, is_deep)
            is_deep = self._ignore.git is not git  # git became available or unavailable: every decision may differ
            if is_deep:
                todo = {top.path: top}
            if not todo:
                return

    def _build_snapshot(self, top: Folder) -> Snapshot:
        folders = top.all()
        for folder in reversed(folders):
            folder.summarize()
        entries: dict[str, Entry] = {}
        left_out: dict[str, str] = {}
        for folder in folders:
            entries.update(folder.entries)
            left_out.update(folder.left_out)
        snapshot = Snapshot(
            id=top.tree,
            entries=MappingProxyType(entries),
            excluded=tuple(ExcludedPath(path, reason) for path, reason in sorted(left_out.items())),
        )
        return self._head.annotate(snapshot)


class HeadTracker:
    """Adds HEAD to each snapshot. Reads the tree of HEAD only when HEAD has moved."""

    def __init__(self, ignore: PathFilter) -> None:
        self._ignore = ignore
        self._trees: dict[str, str | None] = {}
        self._tree = ""
        self._listing: Mapping[str, tuple[str, str]] = {}

    def annotate(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with head, branch and dirty; unchanged if git is not available."""
        git = self._ignore.git
        if git is None:
            return snapshot
        try:
            head = git.head()
            is_dirty = None if head.commit is None else self._differs(git, self._tree_of(git, head.commit), snapshot)
        except GitError:
            return snapshot  # the next question about ignored paths fails, too, and reports it
        return replace(snapshot, head=head.commit, branch=head.branch, dirty=is_dirty)

    def _tree_of(self, git: Git, commit: str) -> str | None:
        if commit not in self._trees:
            self._trees = {commit: git.tree_of(commit)}
        return self._trees[commit]

    def _differs(self, git: Git, tree: str | None, snapshot: Snapshot) -> bool | None:
        if tree is None or tree == snapshot.id:
            return tree is None and bool(snapshot.entries)
        if len(tree) != SHA1_LENGTH:
            return None  # SHA-256 ids cannot be compared with ours
        if tree != self._tree:
            rows = tree_rows(git.run("ls-tree", "-r", "-z", "--full-tree", tree))
            self._tree, self._listing = tree, {row.path: (row.mode, row.object) for row in rows}
        return self._differs_in_a_file(snapshot)

    def _differs_in_a_file(self, snapshot: Snapshot) -> bool:
        """Compare file by file. Submodules and files that `watch.include` added do not make a tree dirty."""
        listing = self._listing
        links = tuple(f"{path}/" for path, (mode, _) in listing.items() if mode == GITLINK)
        for path, entry in snapshot.entries.items():
            if entry.kind is EntryKind.FOLDER:
                continue
            at_head = listing.get(path)
            if at_head is None:
                if not path.startswith(links) and not self._ignore.is_included(path):
                    return True
            elif at_head != (git_mode(entry).decode(), entry.digest):
                return True
        return any(path not in snapshot.entries for path, (mode, _) in listing.items() if mode != GITLINK)
