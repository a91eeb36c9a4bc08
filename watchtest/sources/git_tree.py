"""Snapshots of the index, of HEAD or of a given tree. Reads the repository; changes nothing in it.

git builds the tree from a copy of the index and writes it into a scratch folder, so the user's index is never locked
and no loose object is left behind. The id of a snapshot is git's own tree id.

Content that git stores in another form than a checkout shows:
- A submodule is an entry without content. It is left out, and reported.
- An LFS pointer is replaced by its content if `git lfs fetch` has downloaded it; otherwise it stays and is reported.
- Line endings and other filters are as git stores them, which equals a checkout on Linux.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from watchtest.core.model import Entry, EntryKind, ExcludedPath, Snapshot
from watchtest.errors import SourceMoved, WorkspaceError
from watchtest.sources.git import GITLINK, SHA1_LENGTH, Git, Head, ObjectStore, TreeRow, tree_rows
from watchtest.sources.tree_id import blob_id
from watchtest.workspace.folder import FOLDER

SYMLINK_MODE = "120000"
EXECUTABLE_MODE = "100755"
LFS_POINTER_LIMIT = 1024
LFS_POINTER = re.compile(rb"\Aversion https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\n")
ATTRIBUTES = ".gitattributes"


@dataclass(frozen=True, slots=True)
class TreeId:
    """Names one tree, which never changes."""

    id: str


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
        self._scratch = Path(tempfile.mkdtemp(prefix="watchtest-index-"))
        self._store = ObjectStore(self._git)
        self._object_ids: dict[str, str] = {}
        """Path → git object, for the last snapshot."""
        self._lfs: dict[str, bytes] = {}
        self._sha1_entries: dict[str, Entry] = {}
        """SHA-256 object id → entry with the SHA-1 digest."""

    def close(self) -> None:
        self._store.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def snapshot(self, hint: frozenset[str]) -> Snapshot:
        """Return the whole tree as it is now. Ignores `hint`: git compares trees faster than we could by paths."""
        with self._lock:
            head = self._git.head()
            tree = self._tree_of(head)
            if tree is None:
                raise WorkspaceError(f"{self._git.folder}: no commit yet", hint="Make a first commit.")
            listing = self._git.run("ls-tree", "-r", "-z", "-l", "--full-tree", tree, variables=self._scratch_objects())
            rows = list(tree_rows(listing))
            entries, left_out = self._entries(rows)
            is_dirty = None if head.commit is None else self._git.tree_of(head.commit) != tree
            return Snapshot(tree, entries, left_out, head.commit, head.branch, is_dirty)

    def _tree_of(self, head: Head) -> str | None:
        match self._which:
            case TreeId(id=tree):
                return tree
            case "index":
                return self.tree()
            case "head":
                return self._git.tree_of(head.commit) if head.commit else None

    def tree(self) -> str:
        """Return the tree id of the index, as `git write-tree` does. Raises GitError while paths are unmerged."""
        with self._lock:
            copy = self._scratch / "index"
            try:
                shutil.copyfile(self._index or self._git.directory() / "index", copy)
            except FileNotFoundError:
                copy.unlink(missing_ok=True)  # nothing was ever staged: to git, a missing index is an empty one
            prefix = self._git.prefix()
            options = [f"--prefix={prefix}"] if prefix else []
            return self._git.run("write-tree", *options, variables=self._scratch_objects(copy)).decode("ascii").strip()

    def read(self, path: str, expect: Entry) -> bytes:
        with self._lock:
            content = self._lfs.get(path)
            if content is None:
                content = self._store.read(self._object_ids[path])
            if len(content) != expect.size or blob_id(content) != expect.digest:
                raise SourceMoved(f"{path}: the repository changed since the snapshot")
            return content

    def _scratch_objects(self, index: Path | None = None) -> dict[str, str]:
        """Return variables that make git write objects into the scratch folder and read those of the repository."""
        objects = self._scratch / "objects"
        objects.mkdir(exist_ok=True)
        variables = {"GIT_OBJECT_DIRECTORY": str(objects), "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self._git.objects())}
        return variables | ({"GIT_INDEX_FILE": str(index)} if index is not None else {})

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
            content = file.read_bytes()
        except OSError:
            return None
        return content if hashlib.sha256(content).hexdigest() == oid else None
