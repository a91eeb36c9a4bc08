"""The only module that knows sqlite3: connections, transactions, and its errors in words. Knows no table."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
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
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
    }
)
_DAMAGE_HINT = "the watcher checks it, sets it aside and begins a new one when it next writes"
_WORDS = {
    sqlite3.SQLITE_CORRUPT: ("is damaged", _DAMAGE_HINT),
    sqlite3.SQLITE_NOTADB: ("is damaged", _DAMAGE_HINT),
    sqlite3.SQLITE_FULL: ("cannot be written: the disk is full", "free some space; what was written before is kept"),
    sqlite3.SQLITE_READONLY: ("cannot be written: it is read-only", "give yourself the right to write it"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "look at the rights of the file and of its folder"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written: the disk reports an error", "look at the disk and its space"),
    sqlite3.SQLITE_BUSY: (
        f"was locked by another process for more than {BUSY_TIMEOUT_S:g} s",
        "see which process holds it open",
    ),
}


def connect(path: Path, mode: Literal["rwc", "ro"], *, is_immutable: bool = False) -> Connection:
    """A connection whose transactions are begun by hand. Any thread may use it, one at a time."""
    uri = f"{path.absolute().as_uri()}?mode={mode}{'&immutable=1' if is_immutable else ''}"
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=64
    )
    connection.row_factory = sqlite3.Row
    return connection


def prepare_for_writing(connection: Connection) -> None:
    """WAL: readers and the writer never wait for one another. NORMAL: a killed process loses nothing committed."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_SIZE_LIMIT}")


@contextmanager
def transaction(connection: Connection, kind: Literal["IMMEDIATE", "DEFERRED"] = "IMMEDIATE") -> Iterator[Connection]:
    """All or nothing. A writer takes its lock at once: a reader that turns writer could not wait for it."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        # After some errors (a full disk) SQLite has rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def is_sound(connection: Connection) -> bool:
    """Whether every page is where the file says. Reads the whole file."""
    answer = connection.execute("PRAGMA quick_check(1)").fetchone()
    return answer is not None and answer[0] == "ok"


def is_damage(error: BaseException | None) -> bool:
    """Whether an error says that the file itself is broken."""
    return isinstance(error, sqlite3.Error) and _kind(error) in _DAMAGE


def is_transient(error: BaseException | None) -> bool:
    """Whether the same call may well succeed later: a full disk, a lock, a folder that is out of reach."""
    return isinstance(error, OSError) or (isinstance(error, sqlite3.Error) and _kind(error) in _TRANSIENT)


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Turns an error of the database into a WorkspaceError that names the file and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        words, hint = _WORDS.get(_kind(error), ("refuses", "this is a bug of watchtest; please report it"))
        raise WorkspaceError(f"the history {path} {words} ({error})", hint=hint) from error


def _kind(error: sqlite3.Error) -> int:
    # Errors that Python itself raises (a closed connection, a wrong parameter) carry no code.
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF
