"""Reads one path of the working tree without following links, blocking on pipes or mixing two versions of a file.

A file may change while it is read, and file system clocks tick only every few milliseconds: two edits of the same size
within one tick have the same signature. As in git, a file read just after it changed is therefore "racy" and is read
again for the next snapshot.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import NamedTuple

from watchtest.core.model import Entry, EntryKind
from watchtest.sources.tree_id import blob_id, file_id

RACY_NS = 100_000_000
READ_ATTEMPTS = 5
VANISHED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})
OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)  # the path may have become a link
    | getattr(os, "O_NONBLOCK", 0)  # or a pipe without a writer
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)

Signature = tuple[int, int, int, int, int]


class PathState(NamedTuple):
    """What a path holds. `reason` says why it is left out of the snapshot if there is no entry."""

    signature: Signature
    entry: Entry | None
    reason: str
    is_racy: bool


def signature_of(status: os.stat_result) -> Signature:
    """Return a value that changes with the content, unless two changes fall into one clock tick."""
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode)


def examine(path: str, status: os.stat_result, max_file_bytes: int) -> PathState | None:
    """Read what lies at `path`. Returns None if it vanished or became something else in the meantime."""
    try:
        if stat.S_ISREG(status.st_mode):
            if status.st_size > max_file_bytes:
                reason = f"larger than {max_file_bytes:,} bytes ({status.st_size:,} bytes)"
                return PathState(signature_of(status), None, reason, is_racy=False)
            return _file(path, status)
        if stat.S_ISLNK(status.st_mode):
            return _symlink(path, status)
    except OSError as error:
        if error.errno in VANISHED:
            return None
        # The signature does not change when the file becomes readable again, so it must be tried every time.
        return PathState(signature_of(status), None, unreadable(error), is_racy=True)
    return PathState(signature_of(status), None, f"is {_kind_of(status.st_mode)}", is_racy=False)


def unreadable(error: OSError) -> str:
    return f"cannot be read ({error.strerror or error})"


def read_file(path: str) -> bytes:
    """Return the content of a regular file; never follows a link."""
    descriptor = os.open(path, OPEN_FLAGS)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read()


def read_link(path: str) -> bytes:
    """Return the target of a link as it is stored."""
    return os.fsencode(os.readlink(path))  # noqa: PTH115  a Path would normalise the target


def _file(path: str, status: os.stat_result) -> PathState | None:
    for _ in range(READ_ATTEMPTS):
        began_ns = time.time_ns()
        descriptor = os.open(path, OPEN_FLAGS)
        try:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                return None
            is_racy = _is_racy(before, began_ns)
            digest, count = file_id(descriptor, before.st_size)
            # A second change within the same clock tick leaves the times as they are, so compare two readings.
            is_same = not is_racy or _reread(descriptor, before.st_size) == (digest, count)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        signature = signature_of(before)
        is_whole = is_same and count == before.st_size
        if is_whole and signature == signature_of(after) == signature_of(os.lstat(path)):
            entry = Entry(EntryKind.FILE, before.st_mode & 0o777, before.st_size, digest)
            return PathState(signature, entry, "", is_racy)
    return PathState(signature_of(status), None, "keeps changing while it is read", is_racy=True)


def _reread(descriptor: int, size: int) -> tuple[str, int]:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return file_id(descriptor, size)


def _symlink(path: str, status: os.stat_result) -> PathState | None:
    began_ns = time.time_ns()
    target = read_link(path)
    if signature_of(os.lstat(path)) != signature_of(status):
        return None
    entry = Entry(EntryKind.SYMLINK, 0o777, len(target), blob_id(target))
    return PathState(signature_of(status), entry, "", _is_racy(status, began_ns))


def _is_racy(status: os.stat_result, read_ns: int) -> bool:
    return max(status.st_mtime_ns, status.st_ctime_ns) >= read_ns - RACY_NS


def _kind_of(mode: int) -> str:
    if stat.S_ISSOCK(mode):
        return "a socket"
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    if stat.S_ISBLK(mode) or stat.S_ISCHR(mode):
        return "a device"
    return "neither a file, a folder nor a link"
