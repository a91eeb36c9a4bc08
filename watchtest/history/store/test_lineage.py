"""Gives tests that were renamed, or whose file was moved, the lineage of the tests they were. In transactions of the
caller's.

Which new test is an old one under another name, where that can be told: its file was moved, or it alone was
renamed. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from watchtest.history.queries.test_names import lineages
from watchtest.history.queries.timeline import PackReader
from watchtest.history.store.change_chain import Versions
from watchtest.history.store.columns import JUDGED_STATES
from watchtest.history.store.database import Connection
from watchtest.history.store.tree_changes import changes_between

MIN_SIMILARITY = 0.6
"""So large a part of the names of both files has to be the same, where the content is not."""


def moved_files(before: Versions, after: Versions, tests: Mapping[str, Collection[str]]) -> dict[str, str]:
    """New file → the file it was. `tests` holds the names within each file that is there no more or is new.

    The same content is a proof. Otherwise most names must be the same, and no other file may claim them as well.
    """
    gone = [path for path in after if before[path] is not None and after[path] is None]
    new = [path for path in after if before[path] is None and after[path] is not None]
    found: dict[str, str] = {}
    for path in new:
        same = [old for old in gone if before[old] == after[path] and old not in found.values()]
        # Several of the same content (often empty ones): the one that kept its name, or none.
        same = same if len(same) == 1 else [old for old in same if _base(old) == _base(path)]
        if len(same) == 1:
            found[path] = same[0]
    for path in new:
        if path in found or not tests.get(path):
            continue
        ranked = sorted(
            ((_similarity(tests[path], tests.get(old, ())), old) for old in gone if old not in found.values()),
            reverse=True,
        )
        is_clear = ranked and ranked[0][0] >= MIN_SIMILARITY and (len(ranked) == 1 or ranked[1][0] < MIN_SIMILARITY)
        if is_clear:
            found[path] = ranked[0][1]
    return found


def renamed_within(gone: Collection[str], new: Collection[str]) -> dict[str, str]:
    """New name → the name it had, of tests of one file; names are those within it.

    A function that was there in another class is the same. Else, where one of a class is gone and one is new, it was
    renamed; of several nobody can tell which is which. Parameters have to be the same.
    """
    old_ones, new_ones = {_function(name) for name in gone}, {_function(name) for name in new}
    unchanged = old_ones & new_ones
    was: dict[tuple[str, str], tuple[str, str]] = {}
    for part in (1, 0):
        for each in new_ones - unchanged - was.keys():
            olds = [old for old in old_ones - unchanged - set(was.values()) if old[part] == each[part]]
            news = [other for other in new_ones - unchanged - was.keys() if other[part] == each[part]]
            if len(olds) == len(news) == 1:
                was[each] = olds[0]
    found = {name: _named(was[_function(name)], name) for name in new if _function(name) in was}
    return {name: former for name, former in found.items() if former in gone}


def _function(name: str) -> tuple[str, str]:
    """Its class, and what it is called there; without parameters."""
    where, _, function = name.partition("[")[0].rpartition("::")
    return where, function


def _named(function: tuple[str, str], parameters_of: str) -> str:
    _, bracket, parameters = parameters_of.partition("[")
    return "::".join(part for part in function if part) + bracket + parameters


def _similarity(one: Collection[str], other: Collection[str]) -> float:
    """Of all names that either has, the part that both have."""
    both = set(one) | set(other)
    return len(set(one) & set(other)) / len(both) if both else 0.0


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def trace_renames(connection: Connection, run: int, whole: Collection[str]) -> None:
    """For the tests that are new in this run, which has just ended. `whole`: the files that it ran every test of."""
    ran = set(PackReader(connection).of_run(run).tests)
    _split_lineages(connection, ran)
    gone = _mark_gone_tests(connection, run, ran, whole)
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
    states = ", ".join(f"'{state.value}'" for state in sorted(JUDGED_STATES))
    row = connection.execute(
        f"""
        SELECT MAX(number) AS number FROM runs WHERE number < :run AND imported_from IS NULL AND state IN ({states})
        AND (workspace, lane) = (SELECT workspace, lane FROM runs WHERE number = :run)
        """,
        {"run": run},
    ).fetchone()
    return int(row["number"] or 0)


def _mark_gone_tests(connection: Connection, run: int, ran: set[int], whole: Collection[str]) -> dict[str, set[str]]:
    """Notes which tests are there no more: they were, and a run of all tests, or of all in their file, had them not.
    By file, those that this run was the first to miss."""
    known = connection.execute("SELECT number FROM tests WHERE gone IS NOT NULL").fetchall()
    back = [(each["number"],) for each in known if each["number"] in ran]
    connection.executemany("UPDATE tests SET gone = NULL WHERE number = ?", back)
    row = connection.execute("SELECT selected, state, imported_from FROM runs WHERE number = ?", (run,)).fetchone()
    if row["state"] not in JUDGED_STATES or row["imported_from"] is not None:
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


def _split_lineages(connection: Connection, ran: set[int]) -> None:
    """Two that run side by side are not one: the older name has come back, and the newer is a test of its own."""
    lineage_of = lineages(connection)
    if not lineage_of:
        return
    side_by_side: dict[int, list[int]] = defaultdict(list)
    for number in ran:
        side_by_side[lineage_of.get(number, number)].append(number)
    alone = [(number,) for numbers in side_by_side.values() if len(numbers) > 1 for number in numbers]
    connection.executemany("UPDATE tests SET lineage = NULL WHERE number = ?", alone)
