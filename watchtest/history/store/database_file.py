"""Find the history file of a workspace and open it for reading or writing.

A damaged file is moved aside under another name, never deleted. A lock ensures that only one of several processes that
notice the damage moves the file; otherwise a second one would move the fresh file as well.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from watchtest.errors import WorkspaceError
from watchtest.history.store import database
from watchtest.history.store.database import Connection
from watchtest.history.store.schema import MIGRATIONS, Migration, migrate, refuse_newer, version_of
from watchtest.workspace.folder import open_regular

Warn = Callable[[str], None]

FILE_NAME = "history.sqlite3"
POINTER_LIMIT = 4096
"""A `.git` file holds a single path; anything longer is something else."""
CHECKED_SIZE_LIMIT = 32 * 1024 * 1024
"""A larger file gets a full integrity check only after an error: opening it must not take seconds."""
LOCK_TIMEOUT_S = 30.0
COMPANIONS = ("", "-wal", "-shm")


def open_for_writing(
    path: Path, warn: Warn, *, migrations: Sequence[Migration] = MIGRATIONS, is_suspect: bool = False
) -> Connection:
    """Return a connection to a sound, fully migrated database at `path`, creating it if necessary.

    `warn` is called if a damaged file had to be moved aside.
    """
    with database.translated_errors(path), _translated_system_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _opening_lock(path):
            connection = _open_if_sound(path, is_suspect)
            if connection is None:
                kept = _set_aside(path)
                warn(f"the history {path} was damaged: it was renamed to {kept.name}, and a new one was started")
                connection = database.connect(path, "rwc")
            try:
                database.prepare_for_writing(connection)
                migrate(connection, path, migrations)
                # Only after the migrations: one that rebuilds a table must not trigger its cascades.
                connection.execute("PRAGMA foreign_keys = ON")
            except BaseException:
                connection.close()
                raise
            return connection


@contextmanager
def open_for_reading(path: Path) -> Iterator[Connection]:
    """Give one consistent view of the history for the duration of the block. Raises if there is no history."""
    with database.translated_errors(path):
        connection = database.connect(path, "ro", is_immutable=_is_immutable(path))
        try:
            if version_of(connection) < len(MIGRATIONS):
                # The file has just been read without an error, so there is no damage to warn about.
                open_for_writing(path, warn=lambda _: None).close()
            refuse_newer(connection, path)
            with database.transaction(connection, "DEFERRED"):
                yield connection
        finally:
            connection.close()


def history_exists(path: Path) -> bool:
    """Return whether there is a history file. Raises if its folder may not be read."""
    with _translated_system_errors(path):
        return path.exists()


@contextmanager
def _opening_lock(path: Path) -> Iterator[None]:
    lock = FileLock(path.with_name(path.name + ".lock"), timeout=LOCK_TIMEOUT_S)
    try:
        lock.acquire()
    except Timeout as error:
        raise WorkspaceError(
            f"another process has been opening the history {path} for more than {LOCK_TIMEOUT_S:g} s",
            hint=f"find the process that holds {lock.lock_file}",
        ) from error
    try:
        yield
    finally:
        lock.release()


def _open_if_sound(path: Path, is_suspect: bool) -> Connection | None:
    """Return a connection, or None if the file is damaged."""
    if _has_lost_its_header(path):
        return None
    connection = database.connect(path, "rwc")
    try:
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        must_check = is_suspect or path.stat().st_size <= CHECKED_SIZE_LIMIT
        if not must_check or database.is_sound(connection):
            return connection
    except BaseException as error:
        connection.close()
        if not database.is_damage(error):
            raise
        return None
    connection.close()
    return None


def _has_lost_its_header(path: Path) -> bool:
    """Return whether the file lacks its SQLite header.

    This is checked before SQLite opens the file for writing, because SQLite then deletes the write-ahead log of a file
    without a header.
    """
    if not path.exists():
        return False
    log = path.with_name(path.name + "-wal")
    return not database.has_header(path) if path.stat().st_size else log.exists() and log.stat().st_size > 0


def _set_aside(path: Path) -> Path:
    number = 1
    while (kept := path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")).exists():
        number += 1
    # The log moves with its file: a rescue needs both, and a new file must not replay the old log.
    for companion in reversed(COMPANIONS):
        part = path.with_name(path.name + companion)
        if part.exists():
            part.rename(kept.with_name(kept.name + companion))
    return kept


def _is_immutable(path: Path) -> bool:
    """Return whether we cannot write to the folder and it has no log. SQLite reads such a file only without locks."""
    effective = os.access in os.supports_effective_ids
    can_write = os.access(path.parent, os.W_OK, effective_ids=effective)
    return not can_write and not path.with_name(path.name + "-wal").exists()


@contextmanager
def _translated_system_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, NotImplementedError) as error:
        hint = "check the permissions of its folder and the free disk space, or set WATCHTEST_STATE_DIR"
        raise WorkspaceError(f"the history {path} cannot be used: {error}", hint=hint) from error


def history_path(state_folder: Path, workspace: Path) -> Path:
    """Return the history file of the repository that `workspace` belongs to. Worktrees share it.

    A workspace outside any repository has its own file. `state_folder` is watchtest's own folder in the user's state.
    """
    workspace = workspace.resolve()
    owner = _common_folder(workspace) or workspace
    name = owner.parent.name if owner.name == ".git" else owner.name.removesuffix(".git")
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:40] or "workspace"
    digest = hashlib.sha256(str(owner).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return state_folder / f"{readable}-{digest}" / FILE_NAME


def _common_folder(workspace: Path) -> Path | None:
    """Return the folder that all worktrees of the repository share, or None if there is no repository."""
    git = workspace / ".git"
    if git.is_file():
        target = _pointer(git, prefix="gitdir:")
        if target is None:
            return None
        git = workspace / target
    if not git.is_dir():
        return None
    shared = _pointer(git / "commondir")
    return ((git / shared) if shared else git).resolve()


def _pointer(file: Path, prefix: str = "") -> str | None:
    try:
        with os.fdopen(open_regular(str(file), os.O_RDONLY), "rb") as stream:
            content = stream.read(POINTER_LIMIT).decode("utf-8", "surrogateescape")
    except OSError:
        # Treat an unreadable file like a missing one; the key is then the path of the workspace.
        return None
    return content.removeprefix(prefix).strip("\r\n ") or None if content.startswith(prefix) else None
