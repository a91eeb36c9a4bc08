"""Makes a small repository for the box, so that build backends and tests can ask git there what they ask it here.

It has the graph of the commits that lead to HEAD with their dates, the tags on them, the branch, HEAD's tree with its
content, and the index. It does not have messages, names of people, the content of other commits, other branches,
remotes, hooks or settings. Commits are made anew, so their ids differ from the user's.

Nothing is written to the user's repository. While neither HEAD nor the tags nor the index has moved, a call costs the
status of a few files.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from watchtest.core.model import Entry, EntryKind, Snapshot
from watchtest.errors import SourceMoved
from watchtest.sources.entry import read_file
from watchtest.sources.git import BRANCHES, GITLINK, SHA1_LENGTH, Git, GitError
from watchtest.sources.git_objects import ObjectStore, TreeRow, tree_rows
from watchtest.sources.tree_id import SYMLINK_MODE, blob_id, name_bytes

log = logging.getLogger(__name__)

FOLDER = ".git"
WHO = b"watchtest <watchtest@localhost>"
TIP = b"refs/heads/tip"
TREE = "040000"
COMMITS_LIMIT = 50_000
"""Older commits are cut off, as in a shallow clone."""
CONTENT_LIMIT = 64 * 1024 * 1024
"""A tree with more content comes without it: then `git archive` fails in the box, and everything else works."""
PACKS_LIMIT = 32
EMPTY_BLOB = blob_id(b"")
"""git knows it without having it."""
ASSUMED_VALID = 0x8000
"""The flag of an index entry that git takes for unchanged without looking at the file."""
LONGEST_NAME = 0xFFF
INDEX_TIMES = re.compile(
    rb"([^\0]*)\0  ctime: \d+:\d+\n  mtime: (\d+):(\d+)\n  dev: .*\n  uid: .*\n  size: (\d+)\tflags: \w+\n"
)
"""A file in the output of `git ls-files --debug -z`."""
VALID_DATE = re.compile(rb"\d{1,10} [+-](?:0\d|1[0-3])[0-5]\d")
BAD_IN_BRANCH = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|//|@\{|(^|/)\.|\.(lock)?(/|$)|/$")
EXCLUDED = b"/.watchtest/\n__pycache__/\n*.egg-info/\n"
"""What the box writes into the tree by itself; it makes no version dirty."""

IndexSource = Literal["index", "head"]
Content = bytes | Path


@dataclass(frozen=True, slots=True)
class _IndexEntry:
    path: bytes
    mode: str
    object: str
    stage: int = 0
    is_assumed: bool = False
    """Whether git shall take the file for unchanged, because it is left out of the box."""


@dataclass(frozen=True, slots=True)
class _Commit:
    id: str
    parents: tuple[str, ...]
    date: bytes
    """As git stores it: seconds and time zone."""


@dataclass(frozen=True, slots=True)
class _Tag:
    reference: bytes
    commit: str
    date: bytes
    """b"" for a tag that is not annotated."""


class BoxRepository:
    """The repository for the boxes of one lane. Thread-safe: calls wait for one another."""

    def __init__(self, root: Path, index: IndexSource, environ: Mapping[str, str]) -> None:
        """`index`: the user's own, or that of a fresh checkout of HEAD."""
        self._git = Git(root, environ)
        self._index = index
        self._store = ObjectStore(self._git)
        self._lock = threading.RLock()
        self._seen: tuple[object, ...] = ()
        self._graph_of: tuple[object, ...] = ()
        self._graph: tuple[bytes, bytes, bytes] = (b"", b"", b"")
        self._rows_of_head: list[TreeRow] = []
        self._packed: set[str] = set()
        """The trees and blobs in our packs."""
        self._contents: dict[str, Content] = {}
        self._entries: Mapping[str, Entry] = {}

    def entries(self, snapshot: Snapshot) -> Mapping[str, Entry]:
        """Return the repository for this snapshot as entries to add to it; nothing if there is no repository here."""
        with self._lock:
            if snapshot.head is None and snapshot.branch is None:
                return {}
            try:
                history = (snapshot.head, *self._history())
                seen = (snapshot.branch, _status(self._git.folders()[0] / "index"), *history)
                if seen != self._seen:
                    self._seen = seen
                    self._build(snapshot, history)
            except (GitError, ValueError) as error:
                log.warning("the repository for the box cannot be made: %s", error)
            except OSError as error:
                log.warning("the repository for the box cannot be made: %s", error)
                self._start_over()
            return self._entries

    def read(self, path: str, expect: Entry) -> bytes:
        with self._lock:
            try:
                content = _bytes(self._contents.get(path, b""))
            except OSError as error:
                self._start_over()
                raise SourceMoved(f"{path}: a clean-up of temporary files has removed it") from error
        if blob_id(content) != expect.digest:
            raise SourceMoved(f"{path}: the repository changed since the snapshot")
        return content

    def close(self) -> None:
        self._store.close()

    def _start_over(self) -> None:
        """Forget what was written, so that everything is written again."""
        self._store.close()
        self._store, self._packed, self._seen, self._graph_of = ObjectStore(self._git), set(), (), ()

    def _history(self) -> tuple[object, ...]:
        """Return what changes whenever the tags or the depth of the history do."""
        common = self._git.folders()[1]
        files = [common / name for name in ("packed-refs", "shallow", "reftable/tables.list")]
        return tuple(map(_status, [*files, *(Path(folder) for folder, _, _ in os.walk(common / "refs" / "tags"))]))

    def _build(self, snapshot: Snapshot, history: tuple[object, ...]) -> None:
        head, branch = snapshot.head, snapshot.branch or ""
        if head is not None and len(head) != SHA1_LENGTH:
            return  # the box has SHA-1 ids only
        has_branch = branch != "" and BAD_IN_BRANCH.search(branch) is None
        reference = f"{BRANCHES}{branch if has_branch else 'main'}"
        files: dict[str, Content] = {"HEAD": f"ref: {reference}\n".encode("utf-8", "surrogateescape")}
        if head is not None:
            if history != self._graph_of:
                tree = self._git.tree_of(head)
                self._rows_of_head = self._rows(tree) if tree is not None else []
                self._graph = self._write_graph(head, tree)
                self._graph_of = history
            tip, files["packed-refs"], files["shallow"] = self._graph
            files[reference if has_branch else "HEAD"] = tip
        rows = self._rows_of_head if head is not None else []
        staged = list(self._staged(snapshot) if self._index == "index" else _checked_out(rows, snapshot))
        self._pack_content(rows, staged)
        files |= {"index": index_content(staged), "config": self._config(), "info/exclude": EXCLUDED}
        files |= {f"objects/pack/{file.name}": file for file in self._store.packs.glob("pack-*.[pi][ad][cx]*")}
        self._contents = {f"{FOLDER}/{name}": content for name, content in files.items() if content}
        folders = {f"{FOLDER}/{name}": Entry(EntryKind.FOLDER, 0o755, 0, "") for name in ("objects", "refs")}
        packs = {path: self._entries[path] for path in self._contents if "/pack/" in path and path in self._entries}
        written = {path: _file_entry(content) for path, content in self._contents.items() if path not in packs}
        self._entries = folders | packs | written

    def _config(self) -> bytes:
        lines = ["[core]", "repositoryformatversion = 0", "bare = false", "logAllRefUpdates = false"]
        lines += ["autocrlf = input"] if self._git.setting("core.autocrlf") == "true" else []
        lines += ["fileMode = false"] if self._git.setting("core.fileMode", "--type=bool") == "false" else []
        return "".join(f"{line}\n" for line in [*lines, "[gc]", "auto = 0"]).encode()

    # -- the index ---------------------------------------------------------------------------------

    def _staged(self, snapshot: Snapshot) -> Iterator[_IndexEntry]:
        """Yield the entries of the user's index. `-v` marks in lower case or by S what git itself assumes."""
        lines = os.fsdecode(self._git.run("ls-files", "--stage", "-v", "-z")).split("\0")[:-1]
        rows = [(*facts.split(" "), path) for facts, _, path in (line.partition("\t") for line in lines)]
        entries = snapshot.entries
        filtered = self._unchanged(
            {path for *_, name, _, path in rows if path in entries and entries[path].digest != name}
        )
        for mark, mode, name, stage, path in rows:
            is_left_out = path not in entries and os.path.lexists(self._git.folder / path)
            is_assumed = mark.islower() or mark == "S" or mode == GITLINK or is_left_out or path in filtered
            yield _IndexEntry(name_bytes(path), mode, name, int(stage), is_assumed)

    def _unchanged(self, paths: Collection[str]) -> set[str]:
        """Return those that git has found to be as in the index: a filter like git-lfs turns one into the other."""
        known = INDEX_TIMES.findall(self._git.run("ls-files", "--debug", "-z")) if paths else []
        times = {os.fsdecode(path): (int(at) * 10**9 + int(fraction), int(size)) for path, at, fraction, size in known}
        found = {path: _status(self._git.folder / path) for path in paths if path in times}
        return {path for path, status in found.items() if status is not None and status[:2] == times[path]}

    # -- objects -----------------------------------------------------------------------------------

    def _rows(self, tree: str) -> list[TreeRow]:
        """Return what a tree holds, its folders and the tree itself included."""
        listing = self._store.run("ls-tree", "-r", "-t", "-l", "-z", "--full-tree", tree)
        return [TreeRow("", TREE, tree, -1), *tree_rows(listing)]

    def _pack_content(self, rows: list[TreeRow], staged: list[_IndexEntry]) -> None:
        """Write the objects of HEAD's tree and of the index that the box does not have yet into one more pack."""
        blobs = [row for row in rows if row.size >= 0]
        is_complete = sum(row.size for row in blobs) <= CONTENT_LIMIT
        wanted = [row.object for row in rows if row.mode == TREE]
        # git compares a symlink with its content, even in `git status`.
        wanted += [row.object for row in blobs if is_complete or row.mode.encode() == SYMLINK_MODE]
        wanted += self._readable({entry.object for entry in staged} - {row.object for row in rows} - self._packed)
        fresh = [name for name in dict.fromkeys(wanted) if name not in self._packed]
        if fresh:
            names = "".join(f"{name}\n" for name in fresh).encode()
            options = ("--quiet", "--window=0", "--threads=1")
            self._store.run("pack-objects", *options, str(self._store.packs / "pack"), stdin=names)
            self._packed.update(fresh)

    def _readable(self, names: Collection[str]) -> list[str]:
        """Return which of these are blobs in the repository, if they are not too large together."""
        answer = self._store.run("cat-file", "--batch-check", stdin="".join(f"{name}\n" for name in names).encode())
        found = [line.split(" ") for line in answer.decode("ascii").splitlines() if " blob " in line]
        is_small = sum(int(size) for _, _, size in found) <= CONTENT_LIMIT
        return [name for name, _, _ in found if is_small and name != EMPTY_BLOB]

    def _write_graph(self, head: str, tree: str | None) -> tuple[bytes, bytes, bytes]:
        """Write the commits that lead to HEAD anew, and their tags. Return HEAD's id, packed-refs and shallow."""
        if len(list(self._store.packs.glob("*.pack"))) > PACKS_LIMIT:
            self._store.close()
            self._store, self._packed = ObjectStore(self._git), set()
        commits = self._commits(head)
        marks = {commit.id: mark for mark, commit in enumerate(commits, 1)}
        tags = [tag for tag in self._tags() if tag.commit in marks]
        stream, roots = [], []
        for commit in commits:
            parents = [marks[parent] for parent in commit.parents if parent in marks]
            if not parents:
                roots.append(commit.id)
                stream.append(b"reset %s\n\n" % TIP)  # or it would be a child of the commit before
            stream.append(b"commit %s\nmark :%d\ncommitter %s %s\ndata 0\n" % (TIP, marks[commit.id], WHO, commit.date))
            stream += [b"%s :%d\n" % (b"merge" if at else b"from", parent) for at, parent in enumerate(parents)]
            stream += [b"M 040000 %s \n" % tree.encode()] if commit.id == head and tree is not None else []
        for at, tag in enumerate(tags, len(commits) + 1):
            if tag.date:
                name = tag.reference.removeprefix(b"refs/tags/")
                about = (name, at, marks[tag.commit], WHO, tag.date)
                stream.append(b"tag %s\nmark :%d\nfrom :%d\ntagger %s %s\ndata 0\n" % about)
        made = self._store.import_commits(b"".join(stream))
        is_cut = len(commits) == COMMITS_LIMIT or (self._git.folders()[1] / "shallow").exists()
        shallow = "".join(f"{made[marks[root]]}\n" for root in roots) if is_cut else ""
        lines = [b"# pack-refs with: peeled fully-peeled sorted \n"]
        for at, tag in enumerate(tags, len(commits) + 1):
            target = made[marks[tag.commit]]
            lines.append(b"%s %s\n" % (made.get(at, target).encode(), tag.reference))
            lines += [b"^%s\n" % target.encode()] if tag.date else []
        return f"{made[marks[head]]}\n".encode(), b"".join(lines), shallow.encode()

    def _commits(self, head: str) -> list[_Commit]:
        """Return the commits that lead to HEAD, parents first."""
        options = ("--topo-order", "--reverse", f"--max-count={COMMITS_LIMIT}", "--date=raw", "--format=%cd %H %P")
        lines = self._git.run("rev-list", *options, head).decode("ascii", "replace").splitlines()
        found = (line.split(" ") for line in lines if not line.startswith("commit "))
        return [_Commit(name, tuple(parents), _date(f"{at} {zone}".encode())) for at, zone, name, *parents in found]

    def _tags(self) -> Iterator[_Tag]:
        """Yield the tags in the order of their names."""
        form = "%(objectname) %(*objectname) %(taggerdate:raw)%00%(refname)"
        for line in self._git.run("for-each-ref", f"--format={form}", "refs/tags").splitlines():
            facts, _, reference = line.partition(b"\0")
            name, target, date = facts.split(b" ", 2)
            yield _Tag(reference, (target or name).decode("ascii"), _date(date) if target else b"")


def _checked_out(rows: Iterable[TreeRow], snapshot: Snapshot) -> Iterator[_IndexEntry]:
    for row in rows:
        if row.mode != TREE:
            yield _IndexEntry(name_bytes(row.path), row.mode, row.object, 0, row.path not in snapshot.entries)


def _date(date: bytes) -> bytes:
    """Return a date that git accepts: the tools of long ago have written others."""
    return date if VALID_DATE.fullmatch(date) else b"0 +0000"


def index_content(entries: Iterable[_IndexEntry]) -> bytes:
    """Return an index of version 2 without times and sizes of files, so that git compares contents once."""
    ordered = sorted(entries, key=lambda entry: (entry.path, entry.stage))
    pieces = [b"DIRC", (2).to_bytes(4, "big"), len(ordered).to_bytes(4, "big")]
    for entry in ordered:
        flags = (ASSUMED_VALID if entry.is_assumed else 0) | entry.stage << 12 | min(len(entry.path), LONGEST_NAME)
        pieces += [bytes(24), int(entry.mode, 8).to_bytes(4, "big"), bytes(12), bytes.fromhex(entry.object)]
        pieces += [flags.to_bytes(2, "big"), entry.path, bytes(8 - (62 + len(entry.path)) % 8)]
    content = b"".join(pieces)
    return content + hashlib.sha1(content, usedforsecurity=False).digest()


def _status(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _bytes(content: Content) -> bytes:
    return read_file(str(content)) if isinstance(content, Path) else content


def _file_entry(content: Content) -> Entry:
    found = _bytes(content)
    return Entry(EntryKind.FILE, 0o644, len(found), blob_id(found))
