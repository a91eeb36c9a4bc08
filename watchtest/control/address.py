"""The paths of the control socket, and the token for TCP, for the watcher and for the commands that connect to it.

The token is in a file that only the user can read. It stays the same from one watcher to the next, so that programs
configured with it, such as a metrics scraper, keep working.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import stat
from collections.abc import Iterable
from pathlib import Path

from watchtest.errors import ControlError
from watchtest.workspace.folder import replace_file
from watchtest.workspace.machine import workspace_digest
from watchtest.workspace.user_dirs import is_private

CONNECT_LIMIT_S = 1.0
PATH_LIMIT = 99
"""The longest path of a socket, in bytes, on any system, minus the suffix of its temporary name."""
TOKEN_BYTES = 32
TOKEN_PATTERN = re.compile(r"[A-Za-z0-9_-]{43}")


def socket_paths(workspace: Path, folders: Iterable[Path]) -> tuple[Path, ...]:
    """Return the paths where a watcher of this workspace may listen, in order of preference, without those too long."""
    name = f"{workspace_digest(workspace)[:16]}.sock"
    return tuple(folder / name for folder in folders if len(os.fsencode(folder / name)) <= PATH_LIMIT)


def dead_sockets(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Return the sockets that killed watchers of this user left behind."""
    private = [folder for folder in folders if is_private(folder)]
    return tuple(path for folder in private for path in sorted(folder.glob("*.sock")) if _is_dead(path))


def _is_dead(path: Path) -> bool:
    family = getattr(socket, "AF_UNIX", None)
    if family is None or not path.is_socket():
        return False
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(CONNECT_LIMIT_S)
        try:
            connection.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False  # removed in the meantime, or too busy to answer
    return False


def token_file(state: Path, workspace: Path) -> Path:
    """Return the file of the token of a workspace, in watchtest's folder for state."""
    return state / "api" / f"{workspace_digest(workspace)[:16]}.token"


def read_token(path: Path) -> str:
    """Return the token in this file; empty if there is none, or if another user may have read or written it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return ""
    try:
        status = os.fstat(descriptor)
        is_ours = not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & 0o077)
        if not is_ours or not stat.S_ISREG(status.st_mode):
            return ""
        text = os.read(descriptor, 1000).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
    return text if TOKEN_PATTERN.fullmatch(text) else ""


def ensure_token(path: Path) -> str:
    """Return the token in this file. Create a new one if there is none that can be trusted."""
    if token := read_token(path):
        return token
    token = secrets.token_urlsafe(TOKEN_BYTES)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, f"{token}\n".encode(), mode=0o600)
    except OSError as error:
        raise ControlError(
            f"the token cannot be written to {path}: {error.strerror or error}",
            hint="make it writable, or set WATCHTEST_STATE_DIR to another folder",
        ) from error
    return token
