"""Carries what a file of version 2 holds into the tables of version 3. Part of a released migration: never edited."""

from __future__ import annotations

from watchtest.core.model import Failure, Place
from watchtest.history.store.database import Connection, Row
from watchtest.history.store.failure_texts import add_failure
from watchtest.history.store.zz_history_compaction import compact


def refill(connection: Connection) -> None:
    """Failures by signature and content, ended runs as packs, times of the steps that were kept."""
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


def _place(file: str | None, line: int | None) -> Place | None:
    return None if file is None or line is None else Place(file, line)
