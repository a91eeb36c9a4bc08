"""Snapshots of the index, of HEAD or of a given tree. Reads the repository; changes nothing in it.

git builds the tree from a copy of the index, so the user's index is never locked and no loose object is left behind.
The id of a snapshot is git's own tree id. While the content of a file is missing, there is no snapshot: its id would
promise more than was tested.

Content that git stores in another form than a checkout shows:
- A submodule is an entry without content. It is left out, and reported.
- An LFS pointer is replaced by its content if `git lfs fetch` has downloaded it; otherwise it stays and is reported.
- Line endings and other filters are as git stores them, which equals a checkout on Linux.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from watchtest.core.model import Entry, EntryKind, ExcludedPath, Snapshot
from watchtest.core.text import names
from watchtest.errors import SourceMoved, WorkspaceError
from watchtest.sources.entry import read_file
from watchtest.sources.git import (
    GITLINK,
    SHA1_LENGTH,
    Git,
    GitError,
    Head,
    MissingContent,
)
from watchtest.sources.git_objects import ObjectStore, TreeRow, tree_rows
from watchtest.sources.tree_id import blob_id
from watchtest.workspace.folder import FOLDER

SYMLINK_MODE = "120000"
EXECUTABLE_MODE = "100755"
LFS_POINTER_LIMIT = 1024
LFS_POINTER = re.compile(rb"\Aversion https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\n")
ATTRIBUTES = ".gitattributes"


@dataclass(frozen=True, slots=True)
class TreeId:
    """Names one tree, which never changes, and the commit that it is looked at as."""

    id: str
    commit: str | None = None


class GitTree:
    """The index, HEAD or one given tree of a repository. Thread-safe: calls wait for one another.

    `index` replaces the repository's own index file: git passes another one to the hooks of `git commit -a`.
    """

    def __init__(
        self,
        root: Path,
        which: Literal["index", "head"] | TreeId,
        *,
        environ: Mapping[str, str],
        max_file_bytes: int,
        index: Path | None = None,
    ) -> None:
        self._git = Git(root, environ)
        self._which = which
        self._index = index
        self._max_file_bytes = max_file_bytes
        self._lock = threading.RLock()
        self._store = ObjectStore(self._git)
        self._object_ids: dict[str, str] = {}
        """Path → git object, for the last snapshot."""
        self._lfs: dict[str, bytes] = {}
        self._sha1_entries: dict[str, Entry] = {}
        """SHA-256 object id → entry with the SHA-1 digest."""

    def close(self) -> None:
        self._store.close()

    def snapshot(self, hint: frozenset[str]) -> Snapshot:
        """Return the whole tree as it is now. Ignores `hint`: git compares trees faster than we could by paths."""
        with self._lock:
            head = self._head()
            tree = self._tree_of(head)
            if tree is None:
                raise self._no_tree(head)
            rows = list(tree_rows(self._store.run("ls-tree", "-r", "-z", "-l", "--full-tree", tree)))
            self._check_content(tree, rows)
            entries, left_out = self._entries(rows)
            is_dirty = None if head.commit is None else self._git.tree_of(head.commit) != tree
            return Snapshot(tree, entries, left_out, head.commit, head.branch, is_dirty)

    def _head(self) -> Head:
        head = self._git.head()
        given = self._which.commit if isinstance(self._which, TreeId) else None
        return head if given in (None, head.commit) else Head(given, None)

    def _tree_of(self, head: Head) -> str | None:
        match self._which:
            case TreeId(id=tree):
                return tree
            case "index":
                return self.tree()
            case "head":
                return self._git.tree_of(head.commit) if head.commit else None

    def tree(self) -> str:
        """Return the tree id of the index. Raises UnmergedIndex while paths of it are in conflict."""
        with self._lock:
            return self._store.write_tree(self._index or self._git.directory() / "index", self._git.prefix())

    def _no_tree(self, head: Head) -> WorkspaceError | GitError:
        folder = self._git.folder
        fsck = "`git fsck` says what is wrong with the repository."
        if head.commit is None:
            if head.branch is None:
                return GitError(f"{folder}: HEAD is broken", hint=fsck)
            return WorkspaceError(f"{folder}: no commit yet on {head.branch}", hint="Make a first commit.")
        if self._git.commit(head.commit) is None:
            return GitError(f"{folder}: HEAD is {head.commit[:12]}, but that commit cannot be read", hint=fsck)
        return WorkspaceError(
            f"{folder}: the commit {head.commit[:12]} does not contain this folder", hint="Commit it."
        )

    def _check_content(self, tree: str, rows: list[TreeRow]) -> None:
        missing = [row.path for row in rows if row.size < 0 and row.mode != GITLINK]
        if missing:
            name = "$(git write-tree)" if self._which == "index" else tree
            raise MissingContent(
                f"{self._git.folder}: the repository lacks the content of {names(missing)}",
                hint=f"In a partial clone, `git archive {name} >/dev/null` downloads it; else `git fsck` says more.",
            )

    def read(self, path: str, expect: Entry) -> bytes:
        with self._lock:
            content = self._lfs.get(path)
            if path not in self._object_ids:
                raise SourceMoved(f"{path}: the repository changed since the snapshot")
            if content is None:
                content = self._store.read(self._object_ids[path])
            if len(content) != expect.size or blob_id(content) != expect.digest:
                raise SourceMoved(f"{path}: the repository changed since the snapshot")
            return content

    def _entries(self, rows: list[TreeRow]) -> tuple[dict[str, Entry], tuple[ExcludedPath, ...]]:
        self._object_ids = {row.path: row.object for row in rows}
        self._lfs = {}
        has_lfs = self._mentions_lfs(rows)
        entries: dict[str, Entry] = {}
        left_out: list[ExcludedPath] = []
        for row in rows:
            if row.path.startswith(f"{FOLDER}/"):
                left_out.append(ExcludedPath(row.path, "watchtest's own folder; remove it from git"))
            elif row.mode == GITLINK:
                left_out.append(ExcludedPath(row.path, "a submodule; its content belongs to another repository"))
            elif row.size > self._max_file_bytes:
                left_out.append(ExcludedPath(row.path, f"larger than {self._max_file_bytes} bytes"))
            else:
                entries[row.path] = self._entry(row, has_lfs, left_out)
        return entries, tuple(left_out)

    def _entry(self, row: TreeRow, has_lfs: bool, left_out: list[ExcludedPath]) -> Entry:
        if row.mode == SYMLINK_MODE:
            return self._plain_entry(row, EntryKind.SYMLINK, 0o777)
        mode = 0o755 if row.mode == EXECUTABLE_MODE else 0o644
        if has_lfs and row.size <= LFS_POINTER_LIMIT:
            pointer = LFS_POINTER.match(self._store.read(row.object))
            if pointer is not None:
                content = self._lfs_content(pointer.group(1).decode("ascii"))
                if content is not None:
                    self._lfs[row.path] = content
                    return Entry(EntryKind.FILE, mode, len(content), blob_id(content))
                left_out.append(
                    ExcludedPath(row.path, "only its LFS pointer is here; run `git lfs fetch` to download the content")
                )
        return self._plain_entry(row, EntryKind.FILE, mode)

    def _plain_entry(self, row: TreeRow, kind: EntryKind, mode: int) -> Entry:
        if len(row.object) == SHA1_LENGTH:
            return Entry(kind, mode, row.size, row.object)
        # A SHA-256 repository: the box uses SHA-1, so the content has to be read once.
        entry = self._sha1_entries.get(row.object)
        if entry is None:
            content = self._store.read(row.object)
            entry = self._sha1_entries[row.object] = Entry(kind, mode, len(content), blob_id(content))
        return Entry(kind, mode, entry.size, entry.digest)

    def _mentions_lfs(self, rows: list[TreeRow]) -> bool:
        attributes = [row for row in rows if row.path.rpartition("/")[2] == ATTRIBUTES and row.mode != GITLINK]
        return any(b"filter=lfs" in self._store.read(row.object) for row in attributes)

    def _lfs_content(self, oid: str) -> bytes | None:
        file = self._git.common() / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
        try:
            content = read_file(str(file))
        except OSError:
            return None
        return content if hashlib.sha256(content).hexdigest() == oid else None
