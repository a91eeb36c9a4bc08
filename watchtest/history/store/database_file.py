"""Opens a history for writing or for reading. A damaged file is set aside under another name, never deleted.

Project aside needs a lock of its own: two processes that both find the damage must not move the fresh file, too.

Where the history of a workspace lies. Reads `.git` as far as it must; writes nothing.
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
from watchtest.history.store.database import (
    Connection,
    connect,
    is_damage,
    is_sound,
    prepare_for_writing,
    transaction,
    translated_errors,
)
from watchtest.history.store.schema import MIGRATIONS, Migration, migrate, refuse_newer, version_of

Warn = Callable[[str], None]

CHECKED_SIZE_LIMIT = 32 * 1024 * 1024
"""A larger file is read through only when an error made it suspect: a start must not take seconds."""
LOCK_TIMEOUT_S = 30.0
HEADER = b"SQLite format 3\0"
COMPANIONS = ("", "-wal", "-shm")


def open_for_writing(
    path: Path, warn: Warn, *, migrations: Sequence[Migration] = MIGRATIONS, is_suspect: bool = False
) -> Connection:
    """A sound, current database at `path`, made where there is none. What had to be set aside is told to `say`."""
    with translated_errors(path), _translated_system_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _opening_lock(path):
            connection = _open_if_sound(path, is_suspect)
            if connection is None:
                kept = _set_aside(path)
                warn(f"the history {path} was damaged: it is kept as {kept.name}, and a new one is begun")
                connection = connect(path, "rwc")
            try:
                prepare_for_writing(connection)
                migrate(connection, path, migrations)
                # Only now: a migration that rebuilds a table must not set off its cascades.
                connection.execute("PRAGMA foreign_keys = ON")
            except BaseException:
                connection.close()
                raise
            return connection


@contextmanager
def open_for_reading(path: Path) -> Iterator[Connection]:
    """One consistent view of the history for the length of the block. Raises where there is none."""
    with translated_errors(path):
        connection = connect(path, "ro", is_immutable=_is_immutable(path))
        try:
            if version_of(connection) < len(MIGRATIONS):
                open_for_writing(path, warn=_say_nothing).close()
            refuse_newer(connection, path)
            with transaction(connection, "DEFERRED"):
                yield connection
        finally:
            connection.close()


def history_exists(path: Path) -> bool:
    """Whether there is a history; not being allowed to see is an error, not a no."""
    with _translated_system_errors(path):
        return path.exists()


def _say_nothing(_: str) -> None:
    """A reader that migrates has just read the file: there is no damage to tell of."""


@contextmanager
def _opening_lock(path: Path) -> Iterator[None]:
    lock = FileLock(path.with_name(path.name + ".lock"), timeout=LOCK_TIMEOUT_S)
    try:
        lock.acquire()
    except Timeout as error:
        raise WorkspaceError(
            f"the history {path} is being opened by another process for more than {LOCK_TIMEOUT_S:g} s",
            hint=f"see which process holds {lock.lock_file}",
        ) from error
    try:
        yield
    finally:
        lock.release()


def _open_if_sound(path: Path, is_suspect: bool) -> Connection | None:
    """A connection, or None where the file is damaged."""
    if _has_lost_its_header(path):
        return None
    connection = connect(path, "rwc")
    try:
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        must_check = is_suspect or path.stat().st_size <= CHECKED_SIZE_LIMIT
        if not must_check or is_sound(connection):
            return connection
    except BaseException as error:
        connection.close()
        if not is_damage(error):
            raise
        return None
    connection.close()
    return None


def _has_lost_its_header(path: Path) -> bool:
    """Seen before SQLite sees it: beside a file without its header it would throw the log away."""
    try:
        with path.open("rb") as file:
            head = file.read(len(HEADER))
    except FileNotFoundError:
        return False
    log = path.with_name(path.name + "-wal")
    return head != HEADER if head else log.exists() and log.stat().st_size > 0


def _set_aside(path: Path) -> Path:
    number = 1
    while (kept := path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")).exists():
        number += 1
    # The log goes with its file: together they are what a rescue needs, and a new file must not replay it.
    for companion in reversed(COMPANIONS):
        part = path.with_name(path.name + companion)
        if part.exists():
            part.rename(kept.with_name(kept.name + companion))
    return kept


def _is_immutable(path: Path) -> bool:
    """A folder nobody here can write, and no log in it: SQLite reads such a file only when told not to lock it."""
    effective = os.access in os.supports_effective_ids
    can_write = os.access(path.parent, os.W_OK, effective_ids=effective)
    return not can_write and not path.with_name(path.name + "-wal").exists()


@contextmanager
def _translated_system_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, NotImplementedError) as error:
        hint = "look at the rights of its folder and at the space on the disk, or set WATCHTEST_STATE_DIR"
        raise WorkspaceError(f"the history {path} cannot be used: {error}", hint=hint) from error


FILE_NAME = "history.sqlite3"
POINTER_LIMIT = 4096
"""A `.git` file holds one path; whatever is longer is something else."""


def history_path(state_folder: Path, workspace: Path) -> Path:
    """The history file of the repository `workspace` belongs to: worktrees share it, other folders have their own.

    `state_folder` is watchtest's own folder of the user's state, not the folder of all programs.
    """
    workspace = workspace.resolve()
    common = _common_folder(workspace)
    owner = common or workspace
    name = owner.parent.name if owner.name == ".git" else owner.name.removesuffix(".git")
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:40] or "workspace"
    digest = hashlib.sha256(str(owner).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return state_folder / f"{readable}-{digest}" / FILE_NAME


def _common_folder(workspace: Path) -> Path | None:
    """The folder that all worktrees of a repository share; None where there is no repository to be seen."""
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
        with file.open("rb") as stream:
            content = stream.read(POINTER_LIMIT).decode("utf-8", "surrogateescape")
    except OSError:
        # Unreadable is as good as not there: the workspace's own path is the key then.
        return None
    return content.removeprefix(prefix).strip("\r\n ") or None if content.startswith(prefix) else None
