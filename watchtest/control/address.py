"""Where the control socket of a workspace lies, for the watcher that makes it and the commands that look for it."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path

from watchtest.workspace.zz_machine import machine_id

ASK_LIMIT_S = 1.0
LONGEST = 99
"""Bytes of a path that a socket of any system can have, with room for the name it is made under."""


def socket_places(workspace: Path, folders: Iterable[Path]) -> tuple[Path, ...]:
    """Where a watcher of this workspace may listen, the best first. A path too long for a socket is left out."""
    # With the machine: a home that several share holds the sockets of all of them.
    identity = f"{machine_id()} {workspace}".encode("utf-8", "surrogateescape")
    name = f"{hashlib.sha256(identity).hexdigest()[:16]}.sock"
    return tuple(folder / name for folder in folders if len(os.fsencode(folder / name)) <= LONGEST)


def dead_sockets(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Sockets of this user's watchers that were killed: they are there, and nobody listens."""
    ours = [folder for folder in folders if is_private(folder)]
    return tuple(path for folder in ours for path in sorted(folder.glob("*.sock")) if _is_dead(path))


def _is_dead(path: Path) -> bool:
    family = getattr(socket, "AF_UNIX", None)
    if family is None or not path.is_socket():
        return False
    with socket.socket(family, socket.SOCK_STREAM) as asking:
        asking.settimeout(ASK_LIMIT_S)
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False  # gone meanwhile, or too busy to answer
    return False


def is_private(folder: Path) -> bool:
    """A folder of our own that nobody else can put anything into. Where there are no owners, any folder is."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    if not hasattr(os, "geteuid"):
        return stat.S_ISDIR(status.st_mode)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
