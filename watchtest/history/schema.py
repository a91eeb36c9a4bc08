"""The tables, as numbered migrations. A migration that was released is never edited: what follows is a new one.

`PRAGMA user_version` counts the migrations a file has had. Each goes in one transaction with its own count, so a file
is never between two versions. A newer file than this program knows is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

from watchtest.core.model import Outcome
from watchtest.errors import WorkspaceError
from watchtest.history.database import Connection, transaction

Migration = tuple[str, ...]
"""Statements, one each; no BEGIN, no COMMIT."""

OUTCOME_CODES = MappingProxyType(
    {
        Outcome.PASSED: 1,
        Outcome.FAILED: 2,
        Outcome.ERROR: 3,
        Outcome.SKIPPED: 4,
        Outcome.XFAILED: 5,
        Outcome.XPASSED: 6,
    }
)
"""Results are by far the most rows: an outcome is one byte. A code is never given to another outcome."""

FIRST: Migration = (
    # `number` orders the runs of every workspace; `selected` is null where all tests were asked for.
    """
    CREATE TABLE runs (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        workspace TEXT NOT NULL,
        lane TEXT NOT NULL,
        trigger TEXT NOT NULL,
        selected INTEGER,
        because TEXT NOT NULL,
        is_proof INTEGER NOT NULL,
        is_forced INTEGER NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL DEFAULT '',
        queued_at REAL NOT NULL,
        ended_at REAL,
        tree TEXT,
        head TEXT,
        branch TEXT,
        is_dirty INTEGER,
        environment TEXT
    )
    """,
    "CREATE INDEX runs_open ON runs (workspace) WHERE ended_at IS NULL",
    """
    CREATE TABLE run_states (
        run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (run, position)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE tests (
        number INTEGER PRIMARY KEY,
        identity TEXT NOT NULL UNIQUE,
        file TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE results (
        run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
        test INTEGER NOT NULL REFERENCES tests (number),
        attempt INTEGER NOT NULL,
        outcome INTEGER NOT NULL,
        duration_us INTEGER NOT NULL,
        PRIMARY KEY (run, test, attempt)
    ) WITHOUT ROWID
    """,
    # Apart from results: long and few, so that counting and timelines read only small rows.
    """
    CREATE TABLE failures (
        run INTEGER NOT NULL,
        test INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        signature TEXT,
        kind TEXT NOT NULL,
        message TEXT NOT NULL,
        file TEXT,
        line INTEGER,
        column_number INTEGER,
        source_line TEXT,
        crash_file TEXT,
        crash_line INTEGER,
        text TEXT NOT NULL,
        output TEXT NOT NULL,
        PRIMARY KEY (run, test, attempt),
        FOREIGN KEY (run, test, attempt) REFERENCES results (run, test, attempt) ON DELETE CASCADE
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE outputs (
        run INTEGER PRIMARY KEY REFERENCES runs (number) ON DELETE CASCADE,
        text BLOB NOT NULL
    )
    """,
)

SECOND: Migration = (
    # The gate asks what is known of one tree, and a commit must not wait for it.
    "CREATE INDEX runs_of_tree ON runs (tree, environment)",
)

MIGRATIONS: Sequence[Migration] = (FIRST, SECOND)


def migrate(connection: Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Brings the file to the newest version that is known here, step by step."""
    refuse_newer(connection, path, migrations)
    for version, statements in enumerate(migrations, start=1):
        if version <= version_of(connection):
            continue
        with transaction(connection):
            # Another process may have come first while this one waited for its lock.
            if version <= version_of(connection):
                continue
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version}")


def refuse_newer(connection: Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Raises where a newer watchtest has been at work: its rows could be misread, its rules broken."""
    version = version_of(connection)
    if version > len(migrations):
        raise WorkspaceError(
            f"the history {path} is of version {version}; this watchtest knows versions up to {len(migrations)}",
            hint="upgrade watchtest, or set WATCHTEST_STATE_DIR to another folder; the file is left as it is",
        )


def version_of(connection: Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
