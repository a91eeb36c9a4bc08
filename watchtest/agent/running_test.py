"""The name of the running test, kept in a small file that is mapped into memory.

Noting a name costs no system call, and the file keeps it whatever the test does to the processes around it.
"""

from __future__ import annotations

import mmap
import os

SIZE = 4096


class RunningTest:
    """The writer's side, in the process of the tests. Without a file, it does nothing."""

    def __init__(self, file: str) -> None:
        self._map = _mapped(file) if file else None

    def note(self, name: str) -> None:
        """Note the test that begins now; "" if none is running."""
        if self._map is not None:
            data = name.encode("utf-8", "replace")[: SIZE - 1] + b"\0"
            self._map[: len(data)] = data


def _mapped(file: str) -> mmap.mmap | None:
    try:
        fd = os.open(file, os.O_RDWR)
    except OSError:
        return None  # removed by a test
    try:
        return mmap.mmap(fd, SIZE)
    except (OSError, ValueError):
        return None
    finally:
        os.close(fd)


def prepare(file: str) -> None:
    """Create the file for a job that is about to start."""
    with open(file, "wb") as stream:
        stream.write(b"\0" * SIZE)


def read(file: str) -> str:
    """Return the name that was noted last. It stays until the next job: this agent may be lost soon, too."""
    try:
        with open(file, "rb") as stream:
            return stream.read(SIZE).partition(b"\0")[0].decode("utf-8", "replace")
    except OSError:
        return ""  # no job was running


def remove(file: str) -> None:
    """Forget the name, because its job has ended."""
    try:
        os.unlink(file)
    except OSError:
        pass  # a test has removed it
