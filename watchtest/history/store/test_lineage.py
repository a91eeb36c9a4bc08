"""Recognize renamed tests, so that a test keeps its history under a new name.

A new test is an old one under another name if its file was moved, or if no other test could have been renamed to it.
All names of a test share one lineage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from watchtest.history.queries.test_names import lineages
from watchtest.history.store.columns import JUDGED_SQL, JUDGED_STATES
from watchtest.history.store.database import Connection
from watchtest.history.store.pack import PackReader
from watchtest.history.store.tree_changes import Versions, changes_between

MIN_SIMILARITY = 0.6
"""The part of all test names that two files with different content must have in common to be the same file."""


def moved_files(before: Versions, after: Versions, tests: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Return for each moved file its former path. `tests` has the test names of each new and each deleted file.

    Equal content is a proof. Otherwise most names must be equal, and no other file may be as similar.
    """
    gone = [path for path in after if before[path] is not None and after[path] is None]
    new = [path for path in after if before[path] is None and after[path] is not None]
    found: dict[str, str] = {}
    for path in new:
        same = [old for old in _unclaimed(gone, found) if before[old] == after[path]]
        # If several files have the same content (often empty ones), only one that kept its name counts.
        same = same if len(same) == 1 else [old for old in same if _base(old) == _base(path)]
        if len(same) == 1:
            found[path] = same[0]
    for path in new:
        if path not in found:
            names = tests.get(path, ())
            similar = [old for old in _unclaimed(gone, found) if _are_similar(names, tests.get(old, ()))]
            if len(similar) == 1:
                found[path] = similar[0]
    return found


def renamed_within(gone: Collection[str], new: Collection[str]) -> dict[str, str]:
    """Return for each renamed test of one file its former name; names are those within the file.

    A function that has moved to another class is the same test. Otherwise, if exactly one test of a class is gone and
    one is new, it was renamed; with several, the pairs are ambiguous. Parameters must be equal.
    """
    old_functions, new_functions = {_function(name) for name in gone}, {_function(name) for name in new}
    unchanged = old_functions & new_functions
    former: dict[tuple[str, str], tuple[str, str]] = {}
    for part in (1, 0):
        for each in new_functions - unchanged - former.keys():
            olds = [old for old in old_functions - unchanged - set(former.values()) if old[part] == each[part]]
            news = [other for other in new_functions - unchanged - former.keys() if other[part] == each[part]]
            if len(olds) == len(news) == 1:
                former[each] = olds[0]
    found = {name: _with_parameters(former[_function(name)], name) for name in new if _function(name) in former}
    return {name: old for name, old in found.items() if old in gone}


def _function(name: str) -> tuple[str, str]:
    """Return the class and the name of a test without its parameters."""
    where, _, function = name.partition("[")[0].rpartition("::")
    return where, function


def _with_parameters(function: tuple[str, str], name: str) -> str:
    _, bracket, parameters = name.partition("[")
    return "::".join(part for part in function if part) + bracket + parameters


def _unclaimed(gone: Iterable[str], found: Mapping[str, str]) -> list[str]:
    return [old for old in gone if old not in found.values()]


def _are_similar(one: Collection[str], other: Collection[str]) -> bool:
    union = set(one) | set(other)
    return bool(union) and len(set(one) & set(other)) / len(union) >= MIN_SIMILARITY


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def trace_renames(connection: Connection, run: int, complete_files: Collection[str]) -> None:
    """Find the former names of tests that are new in this run, which has just ended, in the caller's transaction.

    `complete_files` are the files of which the run executed every test.
    """
    ran = set(PackReader(connection).of_run(run).tests)
    _split_lineages(connection, ran)
    gone = _mark_gone_tests(connection, run, ran, complete_files)
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
    for path in (path for path, version in after.items() if version is None and changed):
        rows = connection.execute("SELECT identity, file FROM tests WHERE file = ?", (path,)).fetchall()
        names |= _by_file((row["identity"], path) for row in rows)
    moved = moved_files(before, after, names)
    for file in changed:
        old = moved.get(file, file)
        names_before = (
            renamed_within(gone.get(file, set()), new[file]) if old == file else {name: name for name in new[file]}
        )
        _join_lineages(connection, {f"{file}::{name}": f"{old}::{former}" for name, former in names_before.items()})


def _last_judged(connection: Connection, run: int) -> int:
    """Return the last judged run of this lane before `run`, or 0. Tests that came later are new."""
    row = connection.execute(
        f"""
        SELECT MAX(number) AS number FROM runs WHERE number < :run AND imported_from IS NULL AND state IN ({JUDGED_SQL})
        AND (workspace, lane) = (SELECT workspace, lane FROM runs WHERE number = :run)
        """,
        {"run": run},
    ).fetchone()
    return int(row["number"] or 0)


def _mark_gone_tests(
    connection: Connection, run: int, ran: set[int], complete_files: Collection[str]
) -> dict[str, set[str]]:
    """Mark the tests that are missing in a run of all tests, or of all tests in their file.

    Return by file those that this run is the first to miss.
    """
    marked = connection.execute("SELECT number FROM tests WHERE gone IS NOT NULL").fetchall()
    returned = [(each["number"],) for each in marked if each["number"] in ran]
    connection.executemany("UPDATE tests SET gone = NULL WHERE number = ?", returned)
    row = connection.execute("SELECT selected, state, imported_from FROM runs WHERE number = ?", (run,)).fetchone()
    if row["state"] not in JUDGED_STATES or row["imported_from"] is not None:
        return {}
    rows = connection.execute("SELECT number, identity, file FROM tests WHERE gone IS NULL").fetchall()
    # A result for the file itself means that it could not be imported, so its tests are unknown.
    unreadable = {each["file"] for each in rows if each["number"] in ran and each["identity"] == each["file"]}
    missing = [
        each
        for each in rows
        if each["number"] not in ran
        and each["file"] not in unreadable
        and (row["selected"] is None or each["file"] in complete_files)
    ]
    connection.executemany("UPDATE tests SET gone = ? WHERE number = ?", [(run, each["number"]) for each in missing])
    return _by_file((each["identity"], each["file"]) for each in missing)


def _by_file(tests: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Return the test names within each file, without results for the file itself."""
    found: dict[str, set[str]] = defaultdict(set)
    for identity, file in tests:
        if identity != file:
            found[file].add(identity.partition("::")[2])
    return dict(found)


def _join_lineages(connection: Connection, former_names: Mapping[str, str]) -> None:
    lineage = "SELECT COALESCE(lineage, number) FROM tests WHERE identity = ?"
    for identity, former in former_names.items():
        connection.execute(f"UPDATE tests SET lineage = ({lineage}) WHERE identity = ?", (former, identity))


def _split_lineages(connection: Connection, ran: set[int]) -> None:
    """Separate tests that share a lineage but ran together: the former name is back, so they are two tests."""
    lineage_of = lineages(connection)
    if not lineage_of:
        return
    together: dict[int, list[int]] = defaultdict(list)
    for number in ran:
        together[lineage_of.get(number, number)].append(number)
    separate = [(number,) for numbers in together.values() if len(numbers) > 1 for number in numbers]
    connection.executemany("UPDATE tests SET lineage = NULL WHERE number = ?", separate)
