"""The folders in which this user's system keeps caches, state, settings and sockets.

Environment variables move each of them, for tests and for homes that cannot be written.
"""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path, user_config_path, user_runtime_path, user_state_path

APP = "watchtest"


@dataclass(frozen=True, slots=True)
class UserDirs:
    """The folders that a watcher writes to."""

    cache: Path
    state: Path
    runtime: tuple[Path, ...] = ()
    """For sockets, the best first."""


def user_dirs() -> UserDirs:
    return UserDirs(cache_dir(), state_dir(), runtime_dirs())


def cache_dir() -> Path:
    return Path(os.environ.get("WATCHTEST_CACHE_DIR") or user_cache_path(APP))


def state_dir() -> Path:
    return Path(os.environ.get("WATCHTEST_STATE_DIR") or user_state_path(APP))


def config_dir() -> Path:
    return user_config_path(APP)


def runtime_dirs() -> tuple[Path, ...]:
    """Return the folders that may hold the control socket, the best first."""
    if chosen := os.environ.get("WATCHTEST_RUNTIME_DIR"):
        return (Path(chosen),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a session folder with the wrong rights: we fall back to the next one
        runtime = user_runtime_path(APP)
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return (
        # The system creates the session folder at login. If it is missing, we must not create it ourselves.
        *([runtime] if is_private(runtime.parent) else []),
        state_dir() / "run",
        Path(tempfile.gettempdir()) / f"{APP}-{user}",
    )


def is_private(folder: Path) -> bool:
    """Return whether we own this folder and no other user can write to it. Systems without owners accept any folder."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    is_ours = not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)
    return stat.S_ISDIR(status.st_mode) and is_ours
