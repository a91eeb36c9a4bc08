"""What the watcher listens on: the control socket, with mode 0600, and a port of the loopback interface if configured.

The watcher holds the lock of the workspace, so it may replace an existing socket: a killed watcher left it behind. A
port that is in use is an error.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from watchtest.errors import ControlError
from watchtest.workspace.user_dirs import is_private

BACKLOG = 1024
"""Connections that the system keeps until we accept them; a client that finds more of them fails at once."""


class SocketListener:
    """A unix socket that listens while entered, at the first of these paths that works."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self.path = Path()
        self.socket: socket.socket
        self._inode = 0

    def __enter__(self) -> Self:
        family = getattr(socket, "AF_UNIX", None)
        if family is None:
            raise ControlError("this system has no unix sockets", hint="use the keys of the dashboard instead")
        errors = []
        for path in self._paths:
            try:
                self._listen(path, family)
            except OSError as error:
                errors.append(f"{path}: {error.strerror or error}")
            else:
                return self
        raise ControlError(
            f"no usable path ({'; '.join(errors) or 'all paths are too long'})",
            hint="set WATCHTEST_RUNTIME_DIR to a folder of your own with a short path",
        )

    def _listen(self, path: Path, family: int) -> None:
        folder = path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_private(folder):
            raise OSError(f"{folder} is not a private folder of this user")
        temporary = path.with_name(f"{path.name}.new")
        temporary.unlink(missing_ok=True)
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.bind(str(temporary))
            temporary.chmod(0o600)
            listening.listen(BACKLOG)
            listening.setblocking(False)
            # Renamed last, so that clients that find the socket can connect, and an old one is replaced atomically.
            temporary.replace(path)
            self._inode = path.lstat().st_ino
        except BaseException:
            listening.close()
            raise
        self.path, self.socket = path, listening

    @property
    def name(self) -> str:
        return str(self.path)

    def is_reachable(self) -> bool:
        """Return False if the socket was removed, as cleaners of temporary folders do."""
        try:
            return self.path.lstat().st_ino == self._inode
        except OSError:
            return False

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        if self.is_reachable():
            with suppress(OSError):  # removed in the meantime
                self.path.unlink()


class PortListener:
    """A port of the loopback interface that listens while entered. Port 0 picks a free one."""

    def __init__(self, listen: str) -> None:
        self._listen = listen
        host, _, port = listen.rpartition(":")
        self._host = {"localhost": "127.0.0.1"}.get(host, host.strip("[]"))
        self.port = int(port)
        self.socket: socket.socket

    def __enter__(self) -> Self:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            self.socket = socket.create_server((self._host, self.port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise ControlError(
                f'api.listen = "{self._listen}": {os.strerror(error.errno) if error.errno else error}',
                hint="choose another port, or port 0 for a free one; `watchtest api url` shows it",
            ) from error
        self.socket.setblocking(False)
        self.port = self.socket.getsockname()[1]
        return self

    @property
    def name(self) -> str:
        return f"http://[{self._host}]:{self.port}" if ":" in self._host else f"http://{self._host}:{self.port}"

    def is_reachable(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        self.socket.close()
