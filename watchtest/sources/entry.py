"""One path of the working tree: what it is and what it holds. Follows no link, waits for no pipe, never mixes versions.

A file may change while it is read, and the clock of file systems ticks only every few milliseconds: two edits of the
same size within one tick look alike from outside. So what was read just after a change is called racy and read again
the next time, as git does.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import NamedTuple

from watchtest.core.model import Entry, Kind
from watchtest.sources.tree_id import blob_id, file_id

RACY_NS = 100_000_000
TRIES = 5
VANISHED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})
OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)  # it may have become a link
    | getattr(os, "O_NONBLOCK", 0)  # or a pipe that nobody writes to
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)

Signature = tuple[int, int, int, int, int]


class Seen(NamedTuple):
    """What a path was found to be. Without an entry there is a reason for leaving it out."""

    signature: Signature
    entry: Entry | None
    reason: str
    is_racy: bool


def signature_of(status: os.stat_result) -> Signature:
    """What cannot stay the same when the content changes (but for the tick of the clock)."""
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode)


def examine(path: str, status: os.stat_result, max_file_bytes: int) -> Seen | None:
    """What lies at `path`; None when it vanished or turned into something else meanwhile."""
    try:
        if stat.S_ISREG(status.st_mode):
            if status.st_size > max_file_bytes:
                reason = f"larger than {max_file_bytes:,} bytes ({status.st_size:,} bytes)"
                return Seen(signature_of(status), None, reason, is_racy=False)
            return _file(path, status)
        if stat.S_ISLNK(status.st_mode):
            return _symlink(path, status)
    except OSError as error:
        if error.errno in VANISHED:
            return None
        # The signature cannot tell when it becomes readable again, so it is tried the next time, too.
        return Seen(signature_of(status), None, unreadable(error), is_racy=True)
    return Seen(signature_of(status), None, f"is {_kind_of(status.st_mode)}", is_racy=False)


def unreadable(error: OSError) -> str:
    return f"cannot be read ({error.strerror or error})"


def read_file(path: str) -> bytes:
    """The content of a regular file, not through a link."""
    descriptor = os.open(path, OPEN_FLAGS)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read()


def read_link(path: str) -> bytes:
    """The target of a link as it is stored."""
    return os.fsencode(os.readlink(path))  # noqa: PTH115  a Path would normalise the target


def _file(path: str, status: os.stat_result) -> Seen | None:
    for _ in range(TRIES):
        began_ns = time.time_ns()
        descriptor = os.open(path, OPEN_FLAGS)
        try:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                return None
            is_racy = _is_racy(before, began_ns)
            digest, count = file_id(descriptor, before.st_size)
            # A change in the same tick would not show in the times, so what is so young has to be the same twice.
            is_same = not is_racy or _again(descriptor, before.st_size) == (digest, count)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        signature = signature_of(before)
        is_whole = is_same and count == before.st_size
        if is_whole and signature == signature_of(after) == signature_of(os.lstat(path)):
            entry = Entry(Kind.FILE, before.st_mode & 0o777, before.st_size, digest)
            return Seen(signature, entry, "", is_racy)
    return Seen(signature_of(status), None, "keeps changing while it is read", is_racy=True)


def _again(descriptor: int, size: int) -> tuple[str, int]:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return file_id(descriptor, size)


def _symlink(path: str, status: os.stat_result) -> Seen | None:
    began_ns = time.time_ns()
    target = read_link(path)
    if signature_of(os.lstat(path)) != signature_of(status):
        return None
    entry = Entry(Kind.SYMLINK, 0o777, len(target), blob_id(target))
    return Seen(signature_of(status), entry, "", _is_racy(status, began_ns))


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
