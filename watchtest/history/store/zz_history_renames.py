"""Which new test is an old one under another name, where that can be told: its file was moved, or it alone was
renamed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from watchtest.history.store.change_chain import Versions

ALIKE = 0.6
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
            ((_likeness(tests[path], tests.get(old, ())), old) for old in gone if old not in found.values()),
            reverse=True,
        )
        is_clear = ranked and ranked[0][0] >= ALIKE and (len(ranked) == 1 or ranked[1][0] < ALIKE)
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


def _likeness(one: Collection[str], other: Collection[str]) -> float:
    """Of all names that either has, the part that both have."""
    both = set(one) | set(other)
    return len(set(one) & set(other)) / len(both) if both else 0.0


def _base(path: str) -> str:
    return path.rpartition("/")[2]
