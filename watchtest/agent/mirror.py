"""The tree in the box. It owns exactly the paths that a snapshot brought here and leaves alone what the box made.

After `commit`, every owned path has the announced content, mode and kind, and every path that is no longer owned is
gone. No write ever leaves the root, through a symlink or otherwise. Each file is replaced by one rename. Modes and
times of folders are not mirrored.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
from typing import Callable, Dict, Iterable, List, Optional, Set, Tuple

from . import owned_paths
from .agent_error import AgentError, write_error
from .frames import path_bytes, path_text
from .owned_paths import TreeRow, is_folder

_PathRecord = Tuple[bytes, Tuple[int, int], TreeRow]
"""What is known of an owned path: its absolute path, its signature, and its row at that time."""


class Mirror:
    def __init__(self, root: str, home: str, still_alive: Callable[[], None] = lambda: None) -> None:
        self._still_alive = still_alive
        self.root = os.path.abspath(path_bytes(root))
        self.generation: Optional[int] = 0
        """None while a delta is half applied."""
        self._ledger = owned_paths.Ledger(os.path.join(path_bytes(home), path_bytes(owned_paths.LEDGER)))
        self._records: Dict[str, _PathRecord] = {}
        self._stage = os.path.join(self.root, path_bytes(owned_paths.STAGE))
        self._incoming: Optional[_IncomingFile] = None
        self._announced: Dict[str, TreeRow] = {}
        self._has_failed = False
        self._real_folders: Set[bytes] = set()
        """Folders that this delta has already verified or created."""
        shutil.rmtree(self._stage, ignore_errors=True)  # a killed agent may have left files half written
        self._restore_folders()

    def _restore_folders(self) -> None:
        """Create the folders that we need if a test has removed or replaced them, and make them writable."""
        try:
            os.makedirs(os.path.dirname(self.root), exist_ok=True)
            for folder in (self.root, os.path.dirname(self._stage), self._stage):
                _make_real_folder(folder)
        except OSError as error:
            # A missing parent means that something is deleting the box; it is made anew then.
            raise AgentError(
                "damaged" if error.errno == errno.ENOENT else "workdir",
                "the folder {} in the box cannot be written: {}".format(path_text(self.root), error.strerror),
            ) from error

    # -- what is here ------------------------------------------------------------------------------

    def manifest(self) -> List[TreeRow]:
        """Return every owned path as it is now, reading all contents; [path, null] for a missing one."""
        self._records.clear()
        return [self._examine(path) for path in sorted(self._ledger.paths)]

    def drift(self) -> List[TreeRow]:
        """Return the owned paths that changed since they were last examined: tests may write anywhere in the tree."""
        self._restore_folders()
        if owned_paths.INDEX in self._ledger.paths:
            self._drop_references()
        suspects = [path for path in self._ledger.paths if path not in self._records]
        lstat = os.lstat
        # Every run waits for this loop over the whole tree, so it is written for speed.
        for path, (absolute, signature, _) in self._records.items():
            try:
                found = lstat(absolute)
            except OSError:
                suspects.append(path)
                continue
            if (found.st_ctime_ns, found.st_ino) != signature:
                suspects.append(path)
        changed = []
        for path in suspects:
            before = self._records.get(path)
            row = self._examine(path)
            if before is None or row != before[2]:
                changed.append(row)
        return changed

    def _drop_references(self) -> None:
        """Remove tags and branches that tests have added to the repository, and the lock of a git that was killed."""
        git = os.path.join(self.root, b".git")
        folder = os.path.join(git, b"refs")
        if not is_folder(git) or not is_folder(folder):
            return  # a test has put a link there, which could lead out of the root
        found = [os.path.join(below, name) for below, _, names in os.walk(folder) for name in names]
        for path in (*found, os.path.join(git, b"index.lock")):
            if path_text(path[len(self.root) + 1 :]) not in self._ledger.paths:
                try:
                    os.unlink(path)
                except OSError:
                    continue  # it is not there, or cannot be removed

    def _examine(self, path: str) -> TreeRow:
        absolute = self._absolute(path)
        signature = owned_paths.signature_of(absolute)
        row = owned_paths.row_of(path, absolute, self._still_alive)
        self._records[path] = (absolute, signature, row)
        return row

    # -- applying a delta --------------------------------------------------------------------------

    def begin(self, base: int) -> None:
        if self.generation != base:
            raise AgentError("generation", "the box is at generation {}, not {}".format(self.generation, base))
        self.generation = None
        self._has_failed = False
        self._incoming = None
        self._announced = {}
        self._real_folders.clear()

    def claim(self, paths: Iterable[str]) -> None:
        """Record the paths that are about to be written, so that a crash in between leaves nothing unowned."""
        self._require_begun()
        self._ledger.add(_checked(path) for path in paths)

    def remove(self, paths: Iterable[str]) -> None:
        self._require_begun()
        # Deepest first, so that folders are empty by the time they are removed.
        gone = sorted((_checked(path) for path in paths), key=lambda path: path.count("/"), reverse=True)
        for path in gone:
            self._remove_one(path)
            self._records.pop(path, None)
        self._ledger.drop(gone)

    def write(self, row: TreeRow, content: bytes, is_last: bool) -> None:
        """Write one chunk of a path; the last chunk moves it into place."""
        self._require_begun()
        path = _checked(row[0])
        try:
            if row[1] == owned_paths.FILE:
                self._write_piece(path, row, content, is_last)
            elif row[1] == owned_paths.SYMLINK:
                self._put_symlink(path, row, content)
            elif row[1] == owned_paths.FOLDER:
                self._make_parents(path)
                _make_real_folder(self._absolute(path))
            else:
                raise AgentError("protocol", "unknown kind {!r} of {}".format(row[1], path))
        except OSError as error:
            raise write_error(error, path) from error
        if is_last:
            self._announced[path] = row

    def commit(self, generation: int) -> None:
        """Record the signatures of what was written; the box is at `generation` from now on."""
        self._require_begun()
        if self._has_failed:
            raise AgentError("sync", "a part of the delta failed, so it cannot be committed")
        for path, row in self._announced.items():
            absolute = self._absolute(path)
            self._records[path] = (absolute, owned_paths.signature_of(absolute), list(row))
        self._announced = {}
        self.generation = generation

    def fail(self) -> None:
        """Note that a part of the delta could not be applied, so that it cannot be committed."""
        self._has_failed = True

    def _require_begun(self) -> None:
        if self.generation is not None:
            raise AgentError("protocol", "a delta was sent before `begin`")

    def _write_piece(self, path: str, row: TreeRow, content: bytes, is_last: bool) -> None:
        if self._incoming is None:
            self._incoming = _IncomingFile(path, os.path.join(self._stage, b"incoming"), row)
        incoming = self._incoming
        if incoming.path != path:
            raise AgentError("protocol", "{} began before {} was complete".format(path, incoming.path))
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

    def _put_symlink(self, path: str, row: TreeRow, target: bytes) -> None:
        if owned_paths.blob_id(target) != row[4]:
            raise AgentError("sync", "the target of {} was damaged in transit".format(path))
        staged = os.path.join(self._stage, b"link")
        if os.path.lexists(staged):
            os.unlink(staged)
        os.symlink(target, staged)
        absolute = self._clear_way(path)
        os.rename(staged, absolute)
        _forget_bytecode(absolute)

    def _clear_way(self, path: str) -> bytes:
        """Return the absolute path, after creating real folders above it and removing a folder in its place."""
        self._make_parents(path)
        absolute = self._absolute(path)
        if is_folder(absolute):
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
            _make_real_folder(current)

    def _remove_one(self, path: str) -> None:
        if not self._leads_through_real_folders(path):
            return
        absolute = self._absolute(path)
        try:
            (os.rmdir if is_folder(absolute) else os.unlink)(absolute)
        except FileNotFoundError:
            pass
        except OSError as error:
            # A folder that still contains the box's own files stays.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise write_error(error, path) from error
        _forget_bytecode(absolute)
        self._remove_empty_folders(os.path.dirname(absolute))

    def _leads_through_real_folders(self, path: str) -> bool:
        current = self.root
        for part in path_bytes(path).split(b"/")[:-1]:
            current = os.path.join(current, part)
            if not is_folder(current):
                return False
        return True

    def _remove_empty_folders(self, folder: bytes) -> None:
        while len(folder) > len(self.root):
            try:
                os.rmdir(folder)
            except OSError:
                return  # not empty
            folder = os.path.dirname(folder)

    def _absolute(self, path: str) -> bytes:
        return os.path.join(self.root, path_bytes(path))


class _IncomingFile:
    """A file that arrives in chunks and is hashed on the way."""

    def __init__(self, path: str, staged: bytes, row: TreeRow) -> None:
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
            raise AgentError("sync", "{} was damaged in transit".format(self.path))


def _make_real_folder(folder: bytes) -> None:
    """Create a folder in place of a file, or of a symlink that a test created and that could lead out of the root.

    A folder that a test has made unusable gets its permissions back.
    """
    if not is_folder(folder):
        if os.path.lexists(folder):
            os.unlink(folder)
        os.mkdir(folder)
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        os.chmod(folder, 0o755)


def _checked(path: str) -> str:
    reason = owned_paths.refusal(path)
    if reason:
        raise AgentError("path", reason)
    return path


def _make_younger(staged: bytes, absolute: bytes) -> None:
    """Give the file a later second than the one it replaces.

    Python compares only the size and whole seconds of a source with its bytecode, wherever that is stored, so an edit
    of the same size within one second would run the old code.
    """
    try:
        before = int(os.stat(absolute).st_mtime)
    except OSError:
        return
    now = time.time()
    if int(now) <= before:
        os.utime(staged, (now, before + 1))


def _forget_bytecode(absolute: bytes) -> None:
    """Delete the compiled modules beside a source: sourceless imports must not find a deleted module."""
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
            continue  # a folder of that name, made in the box
    try:
        os.rmdir(cache)
    except OSError:
        pass  # not empty: it contains the bytecode of other modules
