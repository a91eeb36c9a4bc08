"""Computes fingerprints of files: a few in the agent itself; more, or for another Python, in a child process.

The agent's loop calls `on_readable`; nothing here blocks for longer than a few files take.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import fingerprints

MAX_INLINE = 4
"""How many files the agent handles itself; each takes a few milliseconds."""
READ_SIZE = 256 * 1024
PROGRAM = "import sys; sys.path.insert(0, {!r}); from {} import fingerprints; fingerprints.main()".format(
    os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * len(__package__.split(".")))), __package__
)

Send = Callable[[int, List[Any], bool], None]
"""Takes the id of the request, rows, and whether they are the last."""


class FingerprintJobs:
    """The requests for fingerprints that child processes are working on."""

    def __init__(self, root: str, send: Send) -> None:
        self._root = root
        self._send = send
        self._processes: Dict[int, _FingerprintProcess] = {}

    def start(self, request_id: int, python: str, paths: List[str]) -> Optional[int]:
        """Fingerprint these files with the compiler of that Python; return a file to poll if it takes a while."""
        if len(paths) <= MAX_INLINE and _is_like_ours(python):
            self._send(request_id, [fingerprints.fingerprint_of(self._root, path) for path in paths], True)
            return None
        try:
            process = _FingerprintProcess(request_id, python, self._root, paths)
        except OSError as error:
            self._send(request_id, [{"path": path, "error": "no print: {}".format(error)} for path in paths], True)
            return None
        self._processes[process.fd] = process
        return process.fd

    def on_readable(self, fd: int) -> bool:
        """Send the rows that are there; return False when there will be no more."""
        process = self._processes[fd]
        rows, is_open = process.read()
        if rows or not is_open:
            self._send(process.request_id, rows, not is_open)
        return is_open

    def drop(self, fd: int) -> None:
        self._processes.pop(fd).close()

    def close(self) -> None:
        for fd in list(self._processes):
            self.drop(fd)


class _FingerprintProcess:
    """A child process that writes one fingerprint per line."""

    def __init__(self, request_id: int, python: str, root: str, paths: List[str]) -> None:
        self.request_id = request_id
        self._lines = b""
        with tempfile.TemporaryFile() as asked:
            asked.write(json.dumps(paths).encode("ascii"))
            asked.seek(0)
            self._process = subprocess.Popen(
                [python, "-I", "-c", PROGRAM, root], stdin=asked, stdout=subprocess.PIPE, preexec_fn=_lower_priority
            )
        assert self._process.stdout is not None
        self.fd = self._process.stdout.fileno()

    def read(self) -> Tuple[List[Any], bool]:
        """Return complete rows, and whether there may be more."""
        piece = os.read(self.fd, READ_SIZE)
        lines = (self._lines + piece).split(b"\n")
        self._lines = lines.pop()
        return [json.loads(line.decode("ascii")) for line in lines], bool(piece)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@functools.lru_cache(maxsize=None)
def _is_like_ours(python: str) -> bool:
    """Return whether that Python has the same compiler as the agent's own; it is asked once."""
    argv = [python, "-I", "-S", "-c", "import sys; print(sys.implementation.cache_tag, sys.hexversion)"]
    try:
        version = subprocess.run(argv, stdout=subprocess.PIPE, timeout=10, check=True).stdout.decode()
    except (OSError, subprocess.SubprocessError):
        return False
    return version.strip() == "{} {}".format(sys.implementation.cache_tag, sys.hexversion)


def _lower_priority() -> None:
    os.nice(10)  # the tests take precedence
