"""Has prints of files made: a few at once by the agent itself, more, or for another Python, by a process beside.

The agent's loop calls `on_readable`; nothing here blocks for longer than a few files take.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import fingerprints as prints

AT_ONCE = 4
"""So many files take a few milliseconds each."""
READ_SIZE = 256 * 1024
PROGRAM = "import sys; sys.path.insert(0, {!r}); from {} import fingerprints; fingerprints.main()".format(
    os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * len(__package__.split(".")))), __package__
)

Send = Callable[[int, List[Any], bool], None]
"""To whom, which rows, and whether these are the last."""


class Printing:
    def __init__(self, root: str, send: Send) -> None:
        self._root = root
        self._send = send
        self._beside: Dict[int, _Beside] = {}
        self._versions: Dict[str, bool] = {}

    @property
    def fds(self) -> List[int]:
        return list(self._beside)

    def ask(self, identity: int, python: str, paths: List[str]) -> Optional[int]:
        """Prints of these files, by the compiler of that Python. Where to listen, if it takes a while."""
        if len(paths) <= AT_ONCE and self._is_like_ours(python):
            self._send(identity, [prints.print_of(self._root, path) for path in paths], True)
            return None
        try:
            beside = _Beside(identity, python, self._root, paths)
        except OSError as error:
            self._send(identity, [{"path": path, "error": "no print: {}".format(error)} for path in paths], True)
            return None
        self._beside[beside.fd] = beside
        return beside.fd

    def _is_like_ours(self, python: str) -> bool:
        """Asked once: whether it compiles as the agent's own does."""
        known = self._versions.get(python)
        if known is None:
            words = [python, "-I", "-S", "-c", "import sys; print(sys.implementation.cache_tag, sys.hexversion)"]
            try:
                said = subprocess.run(words, stdout=subprocess.PIPE, timeout=10, check=True).stdout.decode()
            except (OSError, subprocess.SubprocessError):
                said = ""
            own = "{} {}".format(sys.implementation.cache_tag, sys.hexversion)
            known = self._versions[python] = said.strip() == own
        return known

    def on_readable(self, fd: int) -> bool:
        """Pass on what is there; False when there will be no more."""
        beside = self._beside[fd]
        rows, is_open = beside.read()
        if rows or not is_open:
            self._send(beside.identity, rows, not is_open)
        return is_open

    def drop(self, fd: int) -> None:
        self._beside.pop(fd).close()

    def close(self) -> None:
        for fd in self.fds:
            self.drop(fd)


class _Beside:
    """A process that makes prints, a line each."""

    def __init__(self, identity: int, python: str, root: str, paths: List[str]) -> None:
        self.identity = identity
        self._lines = b""
        with tempfile.TemporaryFile() as asked:
            asked.write(json.dumps(paths).encode("ascii"))
            asked.seek(0)
            self._process = subprocess.Popen(
                [python, "-I", "-c", PROGRAM, root], stdin=asked, stdout=subprocess.PIPE, preexec_fn=_step_back
            )
        assert self._process.stdout is not None
        self.fd = self._process.stdout.fileno()

    def read(self) -> Tuple[List[Any], bool]:
        """Whole rows, and whether there may be more."""
        piece = os.read(self.fd, READ_SIZE)
        lines = (self._lines + piece).split(b"\n")
        self._lines = lines.pop()
        return [json.loads(line.decode("ascii")) for line in lines], bool(piece)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _step_back() -> None:
    """The tests go first."""
    os.nice(10)
