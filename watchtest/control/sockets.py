"""The watcher's ends: the control socket, made in one piece, 0600, and gone when it is left; and a port, if asked for.

Whoever holds the workspace's lock owns the socket: what lies in its place was left by a watcher that was killed. A port
is of this machine alone, and whoever has it keeps it.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from watchtest.errors import ControlError
from watchtest.workspace.user_dirs import is_private

BACKLOG = 128


class Listener:
    """A socket that listens while entered; `is_there` tells whether others would still find it."""

    def __init__(self, places: Sequence[Path]) -> None:
        self._places = places
        self.path = Path()
        self.socket: socket.socket
        self._inode = 0

    def __enter__(self) -> Self:
        family = getattr(socket, "AF_UNIX", None)
        if family is None:
            raise ControlError("this system has no unix sockets", hint="use the keys of the dashboard instead")
        misses = []
        for path in self._places:
            try:
                self._listen(path, family)
            except OSError as error:
                misses.append(f"{path}: {error.strerror or error}")
            else:
                return self
        raise ControlError(
            f"no place for the control socket ({'; '.join(misses) or 'all paths are too long'})",
            hint="set WATCHTEST_RUNTIME_DIR to a folder of your own with a short path",
        )

    def _listen(self, path: Path, family: int) -> None:
        folder = path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_private(folder):
            raise OSError(f"{folder} is not a folder of yours alone")
        fresh = path.with_name(f"{path.name}.new")
        fresh.unlink(missing_ok=True)
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.bind(str(fresh))
            fresh.chmod(0o600)
            listening.listen(BACKLOG)
            listening.setblocking(False)
            # Under its name only now: whoever finds it can connect, and a dead watcher's is replaced in one go.
            fresh.replace(path)
            self._inode = path.lstat().st_ino
        except BaseException:
            listening.close()
            raise
        self.path, self.socket = path, listening

    @property
    def name(self) -> str:
        return str(self.path)

    def is_there(self) -> bool:
        """Cleaners of temporary folders take sockets away, too."""
        try:
            return self.path.lstat().st_ino == self._inode
        except OSError:
            return False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()
        if self.is_there():
            with suppress(OSError):  # gone between the two looks
                self.path.unlink()


class PortListener:
    """A port of the loopback that listens while entered. The port 0 is any that is free."""

    def __init__(self, listen: str) -> None:
        self._listen = listen
        host, _, port = listen.rpartition(":")
        self._host = {"localhost": "127.0.0.1"}.get(host, host.strip("[]"))
        self.port = int(port)
        self.socket: socket.socket

    def __enter__(self) -> Self:
        is_six = ":" in self._host
        listening = socket.socket(socket.AF_INET6 if is_six else socket.AF_INET, socket.SOCK_STREAM)
        try:
            if sys.platform != "win32":  # there it would let others take the port away
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((self._host, self.port))
            listening.listen(BACKLOG)
            listening.setblocking(False)
        except OSError as error:
            listening.close()
            raise ControlError(
                f'api.listen = "{self._listen}": {error.strerror or error}',
                hint='name another port, or ":0" for any that is free; `watchtest api url` tells which it is',
            ) from error
        self.socket, self.port = listening, listening.getsockname()[1]
        return self

    @property
    def name(self) -> str:
        return f"http://[{self._host}]:{self.port}" if ":" in self._host else f"http://{self._host}:{self.port}"

    def is_there(self) -> bool:
        """A port that is held stays."""
        return True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()
