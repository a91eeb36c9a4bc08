"""Connections, transactions and error messages of SQLite. The only module that imports sqlite3; it knows no table."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

from watchtest.errors import WorkspaceError

Connection = sqlite3.Connection
Row = sqlite3.Row

BUSY_TIMEOUT_S = 15.0
WAL_SIZE_LIMIT = 16 * 1024 * 1024
LARGEST_INTEGER = 2**63 - 1

# The low byte of an extended result code is the kind of the error.
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_TRANSIENT = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
)
_DAMAGE_HINT = "the next time the watcher writes, it checks the file, moves it aside and starts a new one"
_WORDS = {
    sqlite3.SQLITE_CORRUPT: ("is damaged", _DAMAGE_HINT),
    sqlite3.SQLITE_NOTADB: ("is damaged", _DAMAGE_HINT),
    sqlite3.SQLITE_FULL: ("cannot be written: the disk is full", "free some space; nothing written before is lost"),
    sqlite3.SQLITE_READONLY: ("cannot be written: it is read-only", "make the file and its folder writable"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "check the permissions of the file and of its folder"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written: the disk reports an error", "check the disk and its free space"),
    sqlite3.SQLITE_BUSY: (
        f"was locked by another process for more than {BUSY_TIMEOUT_S:g} s",
        "find the process that holds it open",
    ),
}


def connect(path: Path, mode: Literal["rwc", "ro"], *, is_immutable: bool = False) -> Connection:
    """Return a connection in autocommit mode. Any thread may use it, but only one at a time."""
    uri = f"{path.absolute().as_uri()}?mode={mode}{'&immutable=1' if is_immutable else ''}"
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=64
    )
    connection.row_factory = sqlite3.Row
    return connection


def prepare_for_writing(connection: Connection) -> None:
    """Let readers and writers not block each other, and a killed process lose no committed data."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_SIZE_LIMIT}")


@contextmanager
def transaction(connection: Connection, kind: Literal["IMMEDIATE", "DEFERRED"] = "IMMEDIATE") -> Iterator[Connection]:
    """Run the block as one transaction.

    A writer takes its lock at the start: SQLite does not let a reader that becomes a writer wait for it.
    """
    connection.execute(f"BEGIN {kind}")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        # After some errors, such as a full disk, SQLite has already rolled back.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def has_header(path: Path) -> bool:
    """Return whether the file begins like a database. Neither locks nor changes anything.

    SQLite reads the file, not we: when a process closes a file, POSIX drops all locks that the process has on it, even
    those of other connections. SQLite takes care of that.
    """
    with closing(connect(path, "ro", is_immutable=True)) as connection:
        try:
            connection.execute("PRAGMA schema_version")
        except sqlite3.Error as error:
            return _kind(error) != sqlite3.SQLITE_NOTADB
    return True


def is_sound(connection: Connection) -> bool:
    """Return whether the file passes SQLite's quick check. Reads the whole file."""
    answer = connection.execute("PRAGMA quick_check(1)").fetchone()
    return answer is not None and answer[0] == "ok"


def is_damage(error: BaseException | None) -> bool:
    """Return whether an error means that the file itself is damaged."""
    return isinstance(error, sqlite3.Error) and _kind(error) in _DAMAGE


def is_transient(error: BaseException | None) -> bool:
    """Return whether the same call may succeed later: after a full disk, a lock, an unreachable folder."""
    return isinstance(error, OSError) or (isinstance(error, sqlite3.Error) and _kind(error) in _TRANSIENT)


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Turn SQLite errors into a WorkspaceError that names the file and says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        words, hint = _WORDS.get(_kind(error), ("reports an error", "this is a bug in watchtest; please report it"))
        raise WorkspaceError(f"the history {path} {words} ({error})", hint=hint) from error


def _kind(error: sqlite3.Error) -> int:
    # Errors that Python raises itself (a closed connection, a wrong parameter) have no code.
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF
