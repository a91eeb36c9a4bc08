"""The tree in the box. Owns exactly the paths that a snapshot brought here; what was made in the box is left alone.

What it promises: after `commit`, every owned path has the announced bytes, mode and kind; every path that was owned and
is not any more is gone; no write ever leaves the root, through a symlink or otherwise. Each file is replaced by one
rename. Folder modes and times are not mirrored.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from .frames import MirrorError, explained, path_bytes, path_text
from .owned_paths import FILE, FOLDER, SYMLINK, Ledger, Row, blob_id, is_real_folder, row_of, signature_of

KEPT_FOLDER = b".watchtest"
_Seen = Tuple[bytes, Tuple[int, int], Row]
"""An owned path: where it lies, its signature, and the row it stood for."""


class Mirror:
    def __init__(self, root: str, home: str, still_alive: Callable[[], None] = lambda: None) -> None:
        self._still_alive = still_alive
        self.root = os.path.abspath(path_bytes(root))
        self.generation: Optional[int] = 0
        """None while a delta is half applied."""
        self._ledger = Ledger(os.path.join(path_bytes(home), b"owned"))
        self._seen: Dict[str, _Seen] = {}
        self._stage = os.path.join(self.root, KEPT_FOLDER, b"stage")
        self._incoming: Optional[_Incoming] = None
        self._announced: Dict[str, Row] = {}
        self._has_failed = False
        self._real_folders: Set[bytes] = set()
        """Folders of this delta's files that were looked at already."""
        self._prepare()

    def _prepare(self) -> None:
        try:
            os.makedirs(self.root, exist_ok=True)
            # Whatever a killed agent left half written.
            shutil.rmtree(self._stage, ignore_errors=True)
            os.makedirs(self._stage, exist_ok=True)
        except OSError as error:
            raise MirrorError(
                "workdir", "the folder {} in the box cannot be written: {}".format(path_text(self.root), error.strerror)
            ) from error

    # -- what is here ------------------------------------------------------------------------------

    def manifest(self) -> Iterator[Row]:
        """Every owned path as it is now, contents read; [path, null] for what is missing."""
        self._seen.clear()
        for path in sorted(self._ledger.paths):
            yield self._examine(path)

    def drift(self) -> List[Row]:
        """Owned paths that are no longer what they were when last seen: tests may write anywhere in the tree."""
        suspects = [path for path in self._ledger.paths if path not in self._seen]
        lstat = os.lstat
        # The one loop over everything that is on the way from a save to its verdict: nothing in it is for beauty.
        for path, (absolute, signature, _) in self._seen.items():
            try:
                found = lstat(absolute)
            except OSError:
                suspects.append(path)
                continue
            if (found.st_ctime_ns, found.st_ino) != signature:
                suspects.append(path)
        changed = []
        for path in suspects:
            before = self._seen.get(path)
            row = self._examine(path)
            if before is None or row != before[2]:
                changed.append(row)
        return changed

    def _examine(self, path: str) -> Row:
        absolute = self._absolute(path)
        signature = signature_of(absolute)
        row = row_of(path, absolute, self._still_alive)
        self._seen[path] = (absolute, signature, row)
        return row

    # -- applying a delta --------------------------------------------------------------------------

    def begin(self, base: int) -> None:
        if self.generation != base:
            raise MirrorError("generation", "the box is at generation {}, not {}".format(self.generation, base))
        self.generation = None
        self._has_failed = False
        self._incoming = None
        self._announced = {}
        self._real_folders.clear()

    def claim(self, paths: Iterable[str]) -> None:
        """Write down what is about to be written, so that a crash in between leaves nothing unowned."""
        self._require_begun()
        self._ledger.add(_checked(path) for path in paths)

    def remove(self, paths: Iterable[str]) -> None:
        self._require_begun()
        # Deepest first, so that a folder is empty when its turn comes.
        gone = sorted((_checked(path) for path in paths), key=lambda path: path.count("/"), reverse=True)
        for path in gone:
            self._remove_one(path)
            self._seen.pop(path, None)
        self._ledger.drop(gone)

    def write(self, row: Row, content: bytes, is_last: bool) -> None:
        """One piece of one path; the last piece puts it in its place."""
        self._require_begun()
        path = _checked(row[0])
        try:
            if row[1] == FILE:
                self._write_piece(path, row, content, is_last)
            elif row[1] == SYMLINK:
                self._put_symlink(path, row, content)
            elif row[1] == FOLDER:
                self._make_folder(path)
            else:
                raise MirrorError("protocol", "unknown kind {!r} of {}".format(row[1], path))
        except OSError as error:
            raise explained(error, path) from error
        if is_last:
            self._announced[path] = row

    def commit(self, generation: int) -> None:
        """Take the signatures of what was written; from here on the box is at `generation`."""
        self._require_begun()
        if self._has_failed:
            raise MirrorError("sync", "a part of the delta failed, so it cannot be committed")
        for path, row in self._announced.items():
            absolute = self._absolute(path)
            self._seen[path] = (absolute, signature_of(absolute), list(row))
        self._announced = {}
        self.generation = generation

    def fail(self) -> None:
        """A frame of the delta could not be carried out: the tree is not what a commit would call it."""
        self._has_failed = True

    def _require_begun(self) -> None:
        if self.generation is not None:
            raise MirrorError("protocol", "a delta was sent before `begin`")

    def _write_piece(self, path: str, row: Row, content: bytes, is_last: bool) -> None:
        if self._incoming is None:
            self._incoming = _Incoming(path, os.path.join(self._stage, b"incoming"), row)
        incoming = self._incoming
        if incoming.path != path:
            raise MirrorError("protocol", "{} began before {} was complete".format(path, incoming.path))
        incoming.add(content)
        if not is_last:
            return
        self._incoming = None
        incoming.finish()
        absolute = self._clear_way(path)
        if absolute.endswith(b".py"):
            _make_younger(incoming.staged, absolute)
            _forget_bytecode(absolute)
        os.rename(incoming.staged, absolute)

    def _put_symlink(self, path: str, row: Row, target: bytes) -> None:
        if blob_id(target) != row[4]:
            raise MirrorError("sync", "the target of {} was damaged on its way".format(path))
        staged = os.path.join(self._stage, b"link")
        if os.path.lexists(staged):
            os.unlink(staged)
        os.symlink(target, staged)
        absolute = self._clear_way(path)
        os.rename(staged, absolute)
        _forget_bytecode(absolute)

    def _make_folder(self, path: str) -> None:
        absolute = self._absolute(path)
        self._make_parents(path)
        if not is_real_folder(absolute):
            if os.path.lexists(absolute):
                os.unlink(absolute)
            os.mkdir(absolute)

    def _clear_way(self, path: str) -> bytes:
        """The absolute path, with real folders above it and no folder in its own place."""
        self._make_parents(path)
        absolute = self._absolute(path)
        if is_real_folder(absolute):
            shutil.rmtree(absolute)
        return absolute

    def _make_parents(self, path: str) -> None:
        folder = path_bytes(path).rpartition(b"/")[0]
        if folder in self._real_folders:
            return
        self._real_folders.add(folder)
        current = self.root
        for part in folder.split(b"/") if folder else ():
            current = os.path.join(current, part)
            if is_real_folder(current):
                continue
            # A file, or a symlink that a test put here and that would lead us out of the root.
            if os.path.lexists(current):
                os.unlink(current)
            os.mkdir(current)

    def _remove_one(self, path: str) -> None:
        if not self._leads_through_real_folders(path):
            return
        absolute = self._absolute(path)
        try:
            if is_real_folder(absolute):
                os.rmdir(absolute)
            else:
                os.unlink(absolute)
        except FileNotFoundError:
            pass
        except OSError as error:
            # A folder in which the box's own files remain stays.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise explained(error, path) from error
        _forget_bytecode(absolute)
        self._remove_empty_folders(os.path.dirname(absolute))

    def _leads_through_real_folders(self, path: str) -> bool:
        current = self.root
        for part in path_bytes(path).split(b"/")[:-1]:
            current = os.path.join(current, part)
            if not is_real_folder(current):
                return False
        return True

    def _remove_empty_folders(self, folder: bytes) -> None:
        while len(folder) > len(self.root):
            try:
                os.rmdir(folder)
            except OSError:
                return  # not empty: the rule's natural end
            folder = os.path.dirname(folder)

    def _absolute(self, path: str) -> bytes:
        return os.path.join(self.root, path_bytes(path))


class _Incoming:
    """A file on its way, piece by piece, digested as it comes."""

    def __init__(self, path: str, staged: bytes, row: Row) -> None:
        self.path = path
        self.staged = staged
        self._row = row
        self._digest = hashlib.sha1(b"blob %d\0" % row[3])
        self._size = 0
        self._fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def add(self, content: bytes) -> None:
        self._digest.update(content)
        self._size += len(content)
        data = memoryview(content)
        while data:
            data = data[os.write(self._fd, data) :]

    def finish(self) -> None:
        os.fchmod(self._fd, self._row[2])
        os.close(self._fd)
        if self._size != self._row[3] or self._digest.hexdigest() != self._row[4]:
            raise MirrorError("sync", "{} was damaged on its way".format(self.path))


def _checked(path: str) -> str:
    """A path of the wire, or an error: relative, no `..`, nothing of ours."""
    parts = path.split("/")
    if not path or path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise MirrorError("path", "refusing the path {!r}: it could leave the workspace".format(path))
    if path_bytes(parts[0]) == KEPT_FOLDER:
        raise MirrorError("path", "refusing the path {!r}: the folder is watchtest's own".format(path))
    return path


def _make_younger(staged: bytes, absolute: bytes) -> None:
    """A same-size edit within one second would run the old code: Python compares size and whole seconds.

    A later second than the old file's makes it see the change wherever the bytecode lies: behind a link, in a prefix.
    """
    try:
        before = int(os.stat(absolute).st_mtime)
    except OSError:
        return
    now = time.time()
    if int(now) <= before:
        os.utime(staged, (now, before + 1))


def _forget_bytecode(absolute: bytes) -> None:
    """The compiled modules beside a source: sourceless imports must not find what was deleted."""
    if not absolute.endswith(b".py"):
        return
    folder, name = os.path.split(absolute)
    cache = os.path.join(folder, b"__pycache__")
    stem = name[: -len(b"py")]
    try:
        compiled = [entry for entry in os.listdir(cache) if entry.startswith(stem)]
    except OSError:
        return  # never compiled
    for entry in compiled:
        try:
            os.unlink(os.path.join(cache, entry))
        except OSError:
            continue  # something else of that name, made in the box
    try:
        os.rmdir(cache)
    except OSError:
        pass  # holds the bytecode of other modules
