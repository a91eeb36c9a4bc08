"""The ledger of paths that a snapshot brought into the box, and what such a path is right now."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from typing import Any, Callable, Iterable, List, Set, Tuple

from .agent_error import write_error
from .frames import path_bytes, path_text

OWN_FOLDER = ".watchtest"
"""The folder in the tree that belongs to watchtest; no snapshot contains it."""
STAGE = OWN_FOLDER + "/stage"
LEDGER = "owned"
"""The file in the agent's home that lists the owned paths."""


class Ledger:
    """The owned paths, kept on disk so that the next agent knows what it may delete. Append-only between starts."""

    def __init__(self, file: bytes) -> None:
        self._file = file
        try:
            with open(file, "rb") as stream:
                self.paths = parse_ledger(stream.read())
        except FileNotFoundError:
            self.paths = set()
        self._compact()

    def add(self, paths: Iterable[str]) -> None:
        new = [path for path in paths if path not in self.paths]
        self._append(b"+", new)
        self.paths.update(new)

    def drop(self, paths: Iterable[str]) -> None:
        old = [path for path in paths if path in self.paths]
        self._append(b"-", old)
        self.paths.difference_update(old)

    def _append(self, sign: bytes, paths: List[str]) -> None:
        if not paths:
            return
        try:
            with open(self._file, "ab") as stream:
                stream.write(encode_ledger(paths, sign))
        except OSError as error:
            raise write_error(error, path_text(self._file)) from error

    def _compact(self) -> None:
        fresh = self._file + b".new"
        try:
            with open(fresh, "wb") as stream:
                stream.write(encode_ledger(sorted(self.paths)))
            os.replace(fresh, self._file)
        except OSError as error:
            raise write_error(error, path_text(self._file)) from error


def encode_ledger(paths: Iterable[str], sign: bytes = b"+") -> bytes:
    return b"".join(sign + path_bytes(path) + b"\0" for path in paths)


def parse_ledger(content: bytes) -> Set[str]:
    """Return the paths that were added and not removed since."""
    paths: Set[str] = set()
    # A crash may have cut off the record after the last NUL; nothing was written for it yet.
    for record in content.split(b"\0")[:-1]:
        (paths.add if record[:1] == b"+" else paths.discard)(path_text(record[1:]))
    return paths


def refusal(path: str) -> str:
    """Return why this path may not be written; "" if it is relative, has no `..` and is not in our own folder."""
    parts = path.split("/")
    if not path or path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
        return "refusing the path {!r}: it could leave the workspace".format(path)
    if parts[0] == OWN_FOLDER:
        return "refusing the path {!r}: the folder belongs to watchtest".format(path)
    return ""


INDEX = ".git/index"
"""The one owned file that has another form here: git adds times and sizes of files, and caches, to what it got."""
FILE, SYMLINK, FOLDER = "file", "symlink", "folder"
TreeRow = List[Any]
"""[path, kind, mode, size, digest], as in the protocol; [path, null] for a missing path."""
RACY_NS = 50 * 1000 * 1000
"""Kernel timestamps have a resolution of some milliseconds: a file this young may change and keep its times."""
NO_SIGNATURE = (0, 0)


def row_of(path: str, absolute: bytes, still_alive: Callable[[], None]) -> TreeRow:
    try:
        found = os.lstat(absolute)
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(absolute)
            return [path, SYMLINK, 0o777, len(target), blob_id(target)]
        if stat.S_ISDIR(found.st_mode):
            return [path, FOLDER, 0o755, 0, ""]
        if path == INDEX and stat.S_ISREG(found.st_mode):
            with open(absolute, "rb") as stream:
                content = plain_index(stream.read())
            return [path, FILE, stat.S_IMODE(found.st_mode) & 0o777, len(content), blob_id(content)]
        if stat.S_ISREG(found.st_mode):
            digest = _file_id(absolute, found.st_size, still_alive)
            return [path, FILE, stat.S_IMODE(found.st_mode) & 0o777, found.st_size, digest]
    except OSError:
        pass  # missing, or made unreadable by a test: either way it is written again
    return [path, None]


def plain_index(content: bytes) -> bytes:
    """Return an index as it was sent here, without what git has learned since; anything else as it is."""
    if content[:8] != b"DIRC\0\0\0\2":
        return content
    plain, at = [content[:12]], 12
    for _ in range(int.from_bytes(content[8:12], "big")):
        size = (content.find(b"\0", at + 62) - at) // 8 * 8 + 8
        if not 64 <= size <= len(content) - at:
            return content  # cut off
        plain += [bytes(24), content[at + 24 : at + 28], bytes(12), content[at + 40 : at + size]]
        at += size
    joined = b"".join(plain)
    return joined + hashlib.sha1(joined).digest()


def signature_of(absolute: bytes) -> Tuple[int, int]:
    """Return a value that changes whenever the path does: every change or replacement renews the ctime.

    A path that changed a moment ago gets NO_SIGNATURE and is examined again the next time.
    """
    try:
        found = os.lstat(absolute)
    except OSError:
        return NO_SIGNATURE
    is_young = time.time_ns() - found.st_ctime_ns < RACY_NS
    return NO_SIGNATURE if is_young else (found.st_ctime_ns, found.st_ino)


def is_folder(absolute: bytes) -> bool:
    """Return whether this is a real folder, not a symlink to one."""
    try:
        return stat.S_ISDIR(os.lstat(absolute).st_mode)
    except OSError:
        return False


def blob_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _file_id(absolute: bytes, size: int, still_alive: Callable[[], None]) -> str:
    digest = hashlib.sha1(b"blob %d\0" % size)
    with open(absolute, "rb") as stream:
        for piece in iter(lambda: stream.read(1024 * 1024), b""):
            digest.update(piece)
            still_alive()
    return digest.hexdigest()
