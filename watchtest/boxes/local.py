"""The embedded box: the same agent as a subprocess, on a mirror of the workspace in the user's cache folder.

It keeps the workspace untouched and has a virtualenv of its own. It does not isolate processes, the network or the
rest of the file system, and says so.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from watchtest.boxes.agentzip import start_command
from watchtest.boxes.base import Note, Opened
from watchtest.core.model import BoxInfo
from watchtest.errors import BoxError

END_LIMIT_S = 2.0
LAST_WORDS = 8 * 1024
NOT_ISOLATED = "processes, network and files outside the mirror"


class LocalPlace:
    """A folder of the cache: `tree` is the mirror, `home` holds agent and virtualenv."""

    engine = "local"
    variables: Mapping[str, str] = MappingProxyType({})
    is_shared = True

    def __init__(self, folder: Path, environ: Mapping[str, str], python: str = "") -> None:
        self._folder = folder
        self._environ = _without_virtualenv(environ)
        self.image = python or sys.executable
        self.root = str(folder / "tree")
        self.home = str(folder / "home")

    def open(self, agent: bytes, note: Note) -> Opened:
        is_new = not (self._folder / "home").exists()
        self._make_folders()
        stream = PipeStream(start_command(self.image, self.home, self.root, agent), self._environ)
        try:
            stream.write(agent)
        except OSError as error:
            stream.close()
            raise BoxError(f"the agent did not start: {stream.last_words() or error}") from error
        return Opened(self._info("running", ("created" if is_new else "adopted",)), stream)

    def execute(self, argv: list[str], env: Mapping[str, str], path_first: tuple[str, ...]) -> int:
        self._make_folders()
        environ = {**self._environ, **env}
        environ["PATH"] = os.pathsep.join([*path_first, environ.get("PATH") or os.defpath])
        command = [shutil.which(argv[0], path=environ["PATH"]) or argv[0], *argv[1:]]
        try:
            return subprocess.call(command, cwd=self.root, env=environ)
        except OSError as error:
            raise BoxError(f"cannot start {argv[0]}: {error.strerror}") from error

    def inspect(self) -> BoxInfo | None:
        return self._info("stopped", ()) if (self._folder / "home").exists() else None

    def describe(self) -> tuple[str, ...]:
        return (f"local box in {self._folder}, Python {self.image}",)

    def close(self) -> None:
        return

    def _make_folders(self) -> None:
        try:
            for folder in (self.root, self.home):
                Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BoxError(
                f"the folder {error.filename} of the local box cannot be made: {error.strerror}",
                hint="free it, or set XDG_CACHE_HOME to a folder you may write",
            ) from error

    def _info(self, state: str, notes: tuple[str, ...]) -> BoxInfo:
        return BoxInfo(
            engine=self.engine,
            id=self._folder.name,
            image=self.image,
            state=state,
            since=time.time(),
            isolation=NOT_ISOLATED,
            notes=notes,
        )


class PipeStream:
    """The pipes of a subprocess as a byte stream."""

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
                start_new_session=True,  # Ctrl-C on our terminal is ours to handle, not the agent's
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
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(END_LIMIT_S)
        self._last_words = self.last_words()
        self._stderr.close()

    def last_words(self) -> str:
        if self._stderr.closed:
            return self._last_words
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), LAST_WORDS, max(0, size - LAST_WORDS)).decode("utf-8", "replace")


def _without_virtualenv(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's activated virtualenv must not leak into the box's own."""
    kept = {name: value for name, value in environ.items() if name not in ("VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH")}
    active = environ.get("VIRTUAL_ENV")
    if active:
        folders = kept.get("PATH", "").split(os.pathsep)
        kept["PATH"] = os.pathsep.join(
            folder for folder in folders if Path(active) not in (Path(folder), *Path(folder).parents)
        )
    return kept
