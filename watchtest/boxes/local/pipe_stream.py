"""A byte stream over the pipes of a subprocess, for an agent on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping

from watchtest.errors import BoxError

END_LIMIT_S = 2.0
STDERR_LIMIT = 8 * 1024


class PipeStream:
    """A process in a session of its own, so that Ctrl-C on our terminal does not reach the agent."""

    def __init__(self, command: list[str], environ: Mapping[str, str]) -> None:
        self._last_words = ""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the stream
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,  # a buffer has a lock, which a blocked write would hold against `close`
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
            self._process.stdout.close()  # not in `close`, because this thread might still read it
        return piece

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._process.stdin.fileno(), rest) :]

    def close(self) -> None:
        """End the input, which makes the agent end its job and itself; kill it if it does not."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError:
            pass  # the agent has already ended
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._kill()
        self._last_words = self.stderr_tail()
        self._stderr.close()

    def _kill(self) -> None:
        # Kill the process group: killing only bubblewrap would not end the agent inside.
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has just ended
        self._process.wait(END_LIMIT_S)

    def stderr_tail(self) -> str:
        if self._stderr.closed:
            return self._last_words
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), STDERR_LIMIT, max(0, size - STDERR_LIMIT)).decode("utf-8", "replace")
