"""The word by which a program proves over TCP that it may speak with the watcher: in a file of the user alone, 0600.

It stays the same from watcher to watcher, so that what was set up with it (a scraper of metrics) goes on working.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from pathlib import Path

from watchtest.errors import ControlError
from watchtest.workspace.zz_machine import machine_id

SHAPE = re.compile(r"[A-Za-z0-9_-]{43}")
BYTES = 32


def token_file(state: Path, workspace: Path) -> Path:
    """Where the token of a workspace lies, below watchtest's own folder of the user's state."""
    identity = f"{machine_id()} {workspace}".encode("utf-8", "surrogateescape")
    return state / "api" / f"{hashlib.sha256(identity).hexdigest()[:16]}.token"


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
