"""What is staged, or what HEAD holds, as snapshots. Reads the repository; changes nothing in it.

The index is copied before git makes a tree of it, and that tree is written into a scratch folder: the user's index is
never locked, and no loose object is left behind. The id of a snapshot is the id that git itself gives.

What git keeps in another form than a checkout would show it:
- submodules are one entry without content: left out, and said;
- LFS pointers become the content they point at, where `git lfs fetch` has brought it; else they stay pointers, said;
- line endings and other filters are as git keeps them, which is as CI on Linux checks them out.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from watchtest.core.model import Entry, Kind, LeftOut, Snapshot
from watchtest.errors import SourceMoved, WorkspaceError
from watchtest.sources.git import GITLINK, SHA1_LENGTH, Git, Head, Objects
from watchtest.sources.tree_id import blob_id
from watchtest.workspace.folder import FOLDER

SYMLINK_MODE = "120000"
EXECUTABLE_MODE = "100755"
LFS_POINTER_LIMIT = 1024
LFS_POINTER = re.compile(rb"\Aversion https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\n")
ATTRIBUTES = ".gitattributes"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of `git ls-tree -r -l`."""

    path: str
    mode: str
    object: str
    size: int


@dataclass(frozen=True, slots=True)
class TreeId:
    """One tree that never changes."""

    id: str


class GitTree:
    """The index, HEAD or one given tree of a repository. Callers on any thread wait for one another.

    `index`: another file than the repository's own; git gives one to the hooks of `git commit -a`.
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
        self._store = Objects(self._git)
        self._names: dict[str, str] = {}
        """Per path of the last snapshot, the object git keeps it as."""
        self._lfs: dict[str, bytes] = {}
        self._known: dict[str, Entry] = {}
        """Entries of objects whose content had to be read to know them."""

    def close(self) -> None:
        self._store.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def snapshot(self, hint: frozenset[str]) -> Snapshot:
        """The tree now, all of it: git compares faster than we could by paths, so `hint` is not needed."""
        with self._lock:
            head = self._git.head()
            tree = self._tree_of(head)
            if tree is None:
                raise WorkspaceError(f"{self._git.folder}: no commit yet", hint="commit something first")
            rows = list(self._rows(tree))
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
        """The tree id of what is staged, as `git write-tree` gives it. Raises GitError while paths are unmerged."""
        with self._lock:
            copy = self._scratch / "index"
            try:
                shutil.copyfile(self._index or self._git.directory() / "index", copy)
            except FileNotFoundError:
                copy.unlink(missing_ok=True)  # nothing was ever staged: git takes a missing index for an empty one
            prefix = self._git.prefix()
            wish = [f"--prefix={prefix}"] if prefix else []
            return self._git.ask("write-tree", *wish, more=self._scratch_objects(copy)).decode("ascii").strip()

    def read(self, path: str, expect: Entry) -> bytes:
        with self._lock:
            content = self._lfs.get(path)
            if content is None:
                content = self._store.read(self._names[path])
            if len(content) != expect.size or blob_id(content) != expect.digest:
                raise SourceMoved(f"{path}: the repository changed since the snapshot")
            return content

    # -- how ---------------------------------------------------------------------------------------

    def _scratch_objects(self, index: Path | None = None) -> dict[str, str]:
        """Variables that make git write its objects beside the repository, and still see those in it."""
        objects = self._scratch / "objects"
        objects.mkdir(exist_ok=True)
        more = {
            "GIT_OBJECT_DIRECTORY": str(objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self._git.objects()),
        }
        return more | ({"GIT_INDEX_FILE": str(index)} if index is not None else {})

    def _rows(self, tree: str) -> Iterator[Row]:
        listed = self._git.ask("ls-tree", "-r", "-z", "-l", "--full-tree", tree, more=self._scratch_objects())
        for line in listed.decode("utf-8", "surrogateescape").split("\0"):
            if line:
                facts, _, path = line.partition("\t")
                mode, _kind, name, size = facts.split()
                yield Row(path, mode, name, int(size) if size != "-" else 0)

    def _entries(self, rows: list[Row]) -> tuple[dict[str, Entry], tuple[LeftOut, ...]]:
        self._names = {row.path: row.object for row in rows}
        self._lfs = {}
        has_lfs = self._mentions_lfs(rows)
        entries: dict[str, Entry] = {}
        left_out: list[LeftOut] = []
        for row in rows:
            if row.path.startswith(f"{FOLDER}/"):
                left_out.append(LeftOut(row.path, "watchtest's own: remove it from git"))
            elif row.mode == GITLINK:
                left_out.append(LeftOut(row.path, "a submodule: its content is another repository's"))
            elif row.size > self._max_file_bytes:
                left_out.append(LeftOut(row.path, f"larger than {self._max_file_bytes} bytes"))
            else:
                entries[row.path] = self._entry(row, has_lfs, left_out)
        return entries, tuple(left_out)

    def _entry(self, row: Row, has_lfs: bool, left_out: list[LeftOut]) -> Entry:
        if row.mode == SYMLINK_MODE:
            return self._as_kept(row, Kind.SYMLINK, 0o777)
        mode = 0o755 if row.mode == EXECUTABLE_MODE else 0o644
        if has_lfs and row.size <= LFS_POINTER_LIMIT:
            pointer = LFS_POINTER.match(self._store.read(row.object))
            if pointer is not None:
                content = self._lfs_content(pointer.group(1).decode("ascii"))
                if content is not None:
                    self._lfs[row.path] = content
                    return Entry(Kind.FILE, mode, len(content), blob_id(content))
                left_out.append(LeftOut(row.path, "only its LFS pointer is here: `git lfs fetch` brings the content"))
        return self._as_kept(row, Kind.FILE, mode)

    def _as_kept(self, row: Row, kind: Kind, mode: int) -> Entry:
        if len(row.object) == SHA1_LENGTH:
            return Entry(kind, mode, row.size, row.object)
        # A repository of SHA-256 ids: the box speaks SHA-1, so the content has to be read once.
        known = self._known.get(row.object)
        if known is None:
            content = self._store.read(row.object)
            known = self._known[row.object] = Entry(kind, mode, len(content), blob_id(content))
        return Entry(kind, mode, known.size, known.digest)

    def _mentions_lfs(self, rows: list[Row]) -> bool:
        attributes = [row for row in rows if row.path.rpartition("/")[2] == ATTRIBUTES and row.mode != GITLINK]
        return any(b"filter=lfs" in self._store.read(row.object) for row in attributes)

    def _lfs_content(self, oid: str) -> bytes | None:
        file = self._git.common() / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
        try:
            content = file.read_bytes()
        except OSError:
            return None
        return content if hashlib.sha256(content).hexdigest() == oid else None
