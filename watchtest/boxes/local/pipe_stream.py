"""The pipes of a subprocess as a byte stream, for an agent on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping

from watchtest.errors import BoxError

END_LIMIT_S = 2.0
LAST_WORDS = 8 * 1024


class PipeStream:
    """A process in a session of its own, so that Ctrl-C on our terminal is ours to handle, not the agent's."""

    def __init__(self, command: list[str], environ: Mapping[str, str]) -> None:
        self._last_words = ""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the stream
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,  # no lock of Python's own between a blocked write and `close`
                cwd="/",
                env=dict(environ),
                start_new_session=True,
            )
        except OSError as error:
            self._stderr.close()
            raise BoxError(
                f"cannot start the Python of the local box, {command[0]}: {error.strerror}",
                hint="set box.python to an interpreter that exists, Python 3.8 or newer",
            ) from error

    def read(self) -> bytes:
        assert self._process.stdout is not None
        piece = os.read(self._process.stdout.fileno(), 256 * 1024)
        if not piece:
            self._process.stdout.close()  # here and not in `close`: nobody else may be reading it
        return piece

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._process.stdin.fileno(), rest) :]

    def close(self) -> None:
        """End of input tells the agent to end its job and itself."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError:
            pass  # the agent has ended before us
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._kill()
        self._last_words = self.stderr_tail()
        self._stderr.close()

    def _kill(self) -> None:
        # The group, not the process: around a sandboxed agent stands bubblewrap, whose death alone would not end it.
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has just ended
        self._process.wait(END_LIMIT_S)

    def stderr_tail(self) -> str:
        if self._stderr.closed:
            return self._last_words
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), LAST_WORDS, max(0, size - LAST_WORDS)).decode("utf-8", "replace")
