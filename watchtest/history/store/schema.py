"""The tables, as numbered migrations. A released migration is never edited; a change needs a new one.

`PRAGMA user_version` counts the migrations that a file has had. Each migration is one transaction together with its
count, so a file is never between two versions. A file that a newer watchtest has migrated is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from watchtest.core.model import Failure, Location
from watchtest.errors import WorkspaceError
from watchtest.history.store.database import Connection, Row, transaction
from watchtest.history.store.failure_texts import add_failure
from watchtest.history.store.pack import compact


def fill_version_3(connection: Connection) -> None:
    """Fill the tables of version 3 from those of version 2. It belongs to a released migration: never change it."""
    for row in connection.execute("SELECT * FROM failures_of_version_2"):
        add_failure(connection, row["run"], row["test"], row["attempt"], _failure(row))
    for row in connection.execute("SELECT number FROM runs WHERE ended_at IS NOT NULL").fetchall():
        compact(connection, row["number"])
    for column, state in (("started_at", "syncing"), ("executing_at", "running")):
        connection.execute(
            f"UPDATE runs SET {column} = (SELECT MIN(at) FROM run_states WHERE run = runs.number AND state = ?)",
            (state,),
        )


def _failure(row: Row) -> Failure:
    return Failure(
        kind=row["kind"],
        message=row["message"],
        where=_place(row["file"], row["line"]),
        column=row["column_number"],
        source_line=row["source_line"],
        crash=_place(row["crash_file"], row["crash_line"]),
        text=row["text"],
        output=row["output"],
    )


def _place(file: str | None, line: int | None) -> Location | None:
    return None if file is None or line is None else Location(file, line)


Migration = tuple[str | Callable[[Connection], None], ...]
"""Single statements, and functions for what SQL cannot do; neither begins or commits a transaction."""

FIRST: Migration = (
    # `number` orders the runs of all workspaces; `selected` is null for a run of all tests.
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
    # Failures are few and long. They have their own table so that counting and timelines read small rows only.
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
    # The gate looks up the verdict of one tree, and a commit must not wait for it.
    "CREATE INDEX runs_of_tree ON runs (tree, environment)",
)

THIRD: Migration = (
    # When each phase began; the counts of an ended run; and the report that a run was imported from.
    *(f"ALTER TABLE runs ADD COLUMN {name} REAL" for name in ("started_at", "taken_at", "chosen_at", "executing_at")),
    "ALTER TABLE runs ADD COLUMN first_at REAL",
    *(f"ALTER TABLE runs ADD COLUMN {name} INTEGER" for name in ("passed", "failed", "error")),
    *(f"ALTER TABLE runs ADD COLUMN {name} INTEGER" for name in ("skipped", "xfailed", "xpassed")),
    "ALTER TABLE runs ADD COLUMN imported_from TEXT",
    "CREATE INDEX runs_of_workspace ON runs (workspace, number)",
    # A renamed test shares the lineage of its former name.
    "ALTER TABLE tests ADD COLUMN lineage INTEGER",
    "ALTER TABLE tests ADD COLUMN first_run INTEGER",
    "CREATE INDEX tests_of_lineage ON tests (lineage) WHERE lineage IS NOT NULL",
    "CREATE INDEX tests_of_file ON tests (file)",
    # `results` has the rows of a run in progress; of an ended run, only tests with several attempts, not all green.
    "ALTER TABLE results ADD COLUMN kind INTEGER NOT NULL DEFAULT 1",
    # All results of an ended run (see `pack`). Durations have their own table so that timelines read small rows only.
    "CREATE TABLE rosters (number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, tests BLOB NOT NULL)",
    """
    CREATE TABLE packs (
        run INTEGER PRIMARY KEY REFERENCES runs (number) ON DELETE CASCADE,
        roster INTEGER NOT NULL REFERENCES rosters (number),
        outcomes BLOB
    )
    """,
    "CREATE INDEX packs_of_roster ON packs (roster)",
    """
    CREATE TABLE timings (
        run INTEGER PRIMARY KEY REFERENCES runs (number) ON DELETE CASCADE,
        durations BLOB NOT NULL
    )
    """,
    # A test that stays red fails with the same text in run after run, so each text is stored once.
    "CREATE TABLE signatures (number INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)",
    "CREATE TABLE contents (number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, document BLOB NOT NULL)",
    "ALTER TABLE failures RENAME TO failures_of_version_2",
    """
    CREATE TABLE failures (
        run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
        test INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        signature INTEGER NOT NULL REFERENCES signatures (number),
        content INTEGER NOT NULL REFERENCES contents (number),
        PRIMARY KEY (run, test, attempt)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX failures_of_test ON failures (test, run)",
    "CREATE INDEX failures_of_signature ON failures (signature, run)",
    "CREATE INDEX failures_of_content ON failures (content)",
    # How the tree of a run differs from that of the run `since`; and one complete tree per lane to start from.
    """
    CREATE TABLE changes (
        run INTEGER PRIMARY KEY REFERENCES runs (number) ON DELETE CASCADE,
        since INTEGER NOT NULL,
        paths BLOB NOT NULL
    )
    """,
    """
    CREATE TABLE manifests (
        workspace TEXT NOT NULL,
        lane TEXT NOT NULL,
        run INTEGER NOT NULL,
        versions BLOB NOT NULL,
        PRIMARY KEY (workspace, lane)
    )
    """,
    # Tests that passed and failed on the same tree in the same environment.
    """
    CREATE TABLE evidence (
        test INTEGER NOT NULL REFERENCES tests (number),
        failed_run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
        passed_run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
        proof INTEGER NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (test, failed_run, passed_run)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX evidence_of_failed ON evidence (failed_run)",
    "CREATE INDEX evidence_of_passed ON evidence (passed_run)",
    fill_version_3,
    "DROP TABLE failures_of_version_2",
)

FOURTH: Migration = (
    # The first run in which the test should have been and was not; null while the test exists.
    "ALTER TABLE tests ADD COLUMN gone INTEGER",
    # Runs are listed by time, not by number: a run that was imported late may be old.
    "CREATE INDEX runs_by_time ON runs (workspace, queued_at, id)",
)

FIFTH: Migration = (
    # Why the verdict of a run is provisional: a code and a message; null if it is final.
    "ALTER TABLE runs ADD COLUMN provisional TEXT",
    "ALTER TABLE runs ADD COLUMN provisional_because TEXT",
)

MIGRATIONS: Sequence[Migration] = (FIRST, SECOND, THIRD, FOURTH, FIFTH)


def migrate(connection: Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Apply all migrations that the file has not had yet."""
    refuse_newer(connection, path, migrations)
    for version, statements in enumerate(migrations, start=1):
        if version <= version_of(connection):
            continue
        with transaction(connection):
            # Another process may have migrated the file while this one waited for its lock.
            if version <= version_of(connection):
                continue
            for statement in statements:
                if isinstance(statement, str):
                    connection.execute(statement)
                else:
                    statement(connection)
            connection.execute(f"PRAGMA user_version = {version}")


def refuse_newer(connection: Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Raise if a newer watchtest has migrated the file: we could misread its rows or break its rules."""
    version = version_of(connection)
    if version > len(migrations):
        raise WorkspaceError(
            f"the history {path} has version {version}; this watchtest supports versions up to {len(migrations)}",
            hint="upgrade watchtest, or set WATCHTEST_STATE_DIR to another folder; the file was not changed",
        )


def version_of(connection: Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
