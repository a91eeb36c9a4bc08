"""The name of the running test, kept in a small file that is mapped into memory.

Noting a name costs no system call, and the file keeps it whatever the test does to the processes around it.

A test that kills the agent may end before the agent does. So after a job that never ended, the next one is careful: a
name is replaced only when the agent has read the result of its test, which proves that the agent has outlived the test.
"""

from __future__ import annotations

import mmap
import os
from time import monotonic, sleep

SIZE = 4096
CAREFUL, QUICK = b"c", b"q"
"""The first byte of the file; the name follows."""
READ_LIMIT_S = 10.0
"""How long an agent that lives may take to read a result."""


class RunningTest:
    """The writer's side, in the process of the tests. Without a file, it does nothing."""

    def __init__(self, file: str) -> None:
        self._map = _mapped(file) if file else None
        self._is_careful = self._map is not None and self._map[:1] == CAREFUL

    def note(self, name: str) -> None:
        """Note the test that begins now; "" if none is running."""
        if self._map is not None:
            data = name.encode("utf-8", "replace")[: SIZE - 2] + b"\0"
            self._map[1 : 1 + len(data)] = data

    def note_end(self, results: int) -> None:
        """Note that no test is running, once the agent has read its result from this pipe if we must be careful."""
        if not self._is_careful or _is_read(results):
            self.note("")


def _is_read(pipe: int) -> bool:
    """Wait until the other side has read all of this pipe; return False if it does not."""
    import fcntl  # which the tests' own process should not have for nothing
    import termios

    deadline = monotonic() + READ_LIMIT_S
    while any(fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4)):
        if monotonic() > deadline:
            return False
        sleep(0.001)
    return True


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
    """Create the file for a job that is about to start. If there is one, the job before has never ended."""
    mode = CAREFUL if os.path.exists(file) else QUICK
    with open(file, "wb") as stream:
        stream.write(mode.ljust(SIZE, b"\0"))


def read(file: str) -> str:
    """Return the name that was noted last. It stays until the next job: this agent may be lost soon, too."""
    try:
        with open(file, "rb") as stream:
            return stream.read(SIZE)[1:].partition(b"\0")[0].decode("utf-8", "replace")
    except OSError:
        return ""  # no job was running


def remove(file: str) -> None:
    """Forget the name, because its job has ended."""
    try:
        os.unlink(file)
    except OSError:
        pass  # a test has removed it
