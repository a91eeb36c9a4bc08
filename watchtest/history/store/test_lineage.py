"""Gives tests that were renamed, or whose file was moved, the lineage of the tests they were. In transactions of the
caller's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from watchtest.history.queries.test_names import lines
from watchtest.history.queries.timeline import Packs
from watchtest.history.store.columns import JUDGED
from watchtest.history.store.database import Connection
from watchtest.history.store.tree_changes import changes_between
from watchtest.history.store.zz_history_renames import moved_files, renamed_within


def follow_names(connection: Connection, run: int, whole: Collection[str]) -> None:
    """For the tests that are new in this run, which has just ended. `whole`: the files that it ran every test of."""
    ran = set(Packs(connection).one(run).tests)
    _part_ways(connection, ran)
    gone = _see_gone(connection, run, ran, whole)
    last = _last_judged(connection, run)
    is_new = "first_run > ? AND lineage IS NULL"
    rows = connection.execute(f"SELECT number, identity, file FROM tests WHERE {is_new}", (last,)).fetchall()
    new = _by_file((row["identity"], row["file"]) for row in rows if row["number"] in ran)
    found = changes_between(connection, last, run) if new else None
    if found is None:
        return
    before, after = found
    changed = new.keys() & after.keys()
    names = {file: new[file] for file in changed}
    for path in (path for path, there in after.items() if there is None and changed):
        rows = connection.execute("SELECT identity, file FROM tests WHERE file = ?", (path,)).fetchall()
        names |= _by_file((row["identity"], path) for row in rows)
    moved = moved_files(before, after, names)
    for file in changed:
        was = moved.get(file, file)
        same = renamed_within(gone.get(file, set()), new[file]) if was == file else {name: name for name in new[file]}
        _join(connection, {f"{file}::{name}": f"{was}::{former}" for name, former in same.items()})


def _last_judged(connection: Connection, run: int) -> int:
    """The run of this lane before: what it did not have is new. Some that had no verdict may lie between."""
    states = ", ".join(f"'{state.value}'" for state in sorted(JUDGED))
    row = connection.execute(
        f"""
        SELECT MAX(number) AS number FROM runs WHERE number < :run AND imported_from IS NULL AND state IN ({states})
        AND (workspace, lane) = (SELECT workspace, lane FROM runs WHERE number = :run)
        """,
        {"run": run},
    ).fetchone()
    return int(row["number"] or 0)


def _see_gone(connection: Connection, run: int, ran: set[int], whole: Collection[str]) -> dict[str, set[str]]:
    """Notes which tests are there no more: they were, and a run of all tests, or of all in their file, had them not.
    By file, those that this run was the first to miss."""
    known = connection.execute("SELECT number FROM tests WHERE gone IS NOT NULL").fetchall()
    back = [(each["number"],) for each in known if each["number"] in ran]
    connection.executemany("UPDATE tests SET gone = NULL WHERE number = ?", back)
    row = connection.execute("SELECT selected, state, imported_from FROM runs WHERE number = ?", (run,)).fetchone()
    if row["state"] not in JUDGED or row["imported_from"] is not None:
        return {}
    rows = connection.execute("SELECT number, identity, file FROM tests WHERE gone IS NULL").fetchall()
    # The result of a file itself: it could not be read, and nobody knows what is in there.
    unread = {each["file"] for each in rows if each["number"] in ran and each["identity"] == each["file"]}
    missed = [
        each
        for each in rows
        if each["number"] not in ran
        and each["file"] not in unread
        and (row["selected"] is None or each["file"] in whole)
    ]
    connection.executemany("UPDATE tests SET gone = ? WHERE number = ?", [(run, each["number"]) for each in missed])
    return _by_file((each["identity"], each["file"]) for each in missed)


def _by_file(tests: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """The names within each file; the result of a file itself has none."""
    found: dict[str, set[str]] = defaultdict(set)
    for identity, file in tests:
        if identity != file:
            found[file].add(identity.partition("::")[2])
    return dict(found)


def _join(connection: Connection, was: Mapping[str, str]) -> None:
    line = "SELECT COALESCE(lineage, number) FROM tests WHERE identity = ?"
    for identity, former in was.items():
        connection.execute(f"UPDATE tests SET lineage = ({line}) WHERE identity = ?", (former, identity))


def _part_ways(connection: Connection, ran: set[int]) -> None:
    """Two that run side by side are not one: the older name has come back, and the newer is a test of its own."""
    line_of = lines(connection)
    if not line_of:
        return
    side_by_side: dict[int, list[int]] = defaultdict(list)
    for number in ran:
        side_by_side[line_of.get(number, number)].append(number)
    alone = [(number,) for numbers in side_by_side.values() if len(numbers) > 1 for number in numbers]
    connection.executemany("UPDATE tests SET lineage = NULL WHERE number = ?", alone)
