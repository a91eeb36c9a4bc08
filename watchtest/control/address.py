"""Where the control socket of a workspace lies, for the watcher that makes it and the commands that look for it.

The word by which a program proves over TCP that it may speak with the watcher: in a file of the user alone, 0600.

It stays the same from watcher to watcher, so that what was set up with it (a scraper of metrics) goes on working.
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
from watchtest.workspace.machine import workspace_digest
from watchtest.workspace.user_dirs import is_private

ASK_LIMIT_S = 1.0
LONGEST = 99
"""Bytes of a path that a socket of any system can have, with room for the name it is made under."""


def socket_places(workspace: Path, folders: Iterable[Path]) -> tuple[Path, ...]:
    """Where a watcher of this workspace may listen, the best first. A path too long for a socket is left out."""
    name = f"{workspace_digest(workspace)[:16]}.sock"
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


SHAPE = re.compile(r"[A-Za-z0-9_-]{43}")
BYTES = 32


def token_file(state: Path, workspace: Path) -> Path:
    """Where the token of a workspace lies, below watchtest's own folder of the user's state."""
    return state / "api" / f"{workspace_digest(workspace)[:16]}.token"


def kept_token(path: Path) -> str:
    """The token in this file; empty where there is none, or one that somebody else may have seen or made."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return ""
    try:
        if not _is_ours_alone(os.fstat(descriptor)):
            return ""
        text = os.read(descriptor, 1000).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
    return text if SHAPE.fullmatch(text) else ""


def ensure_token(path: Path) -> str:
    """The token in this file; where there is none that can be trusted, a new one in its place."""
    if kept := kept_token(path):
        return kept
    token = secrets.token_urlsafe(BYTES)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{token}\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise ControlError(
            f"the token cannot be kept in {path}: {error.strerror or error}",
            hint="give yourself the right to write it, or set WATCHTEST_STATE_DIR to another folder",
        ) from error
    return token


def _is_ours_alone(status: os.stat_result) -> bool:
    if not stat.S_ISREG(status.st_mode):
        return False
    return not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & 0o077)
