"""The line of a TOML file on which each key stands; tomllib tells values but not places.

Reads one statement at a time: a statement ends with the first line at which it parses by itself, so that lines inside
a multi-line string or list are never taken for keys. Only asked about text that parses as a whole.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping

ENDS = re.compile(r"""[\]}]|\'{3}|"{3}""")
LONGEST_STATEMENT = 200  # lines; a longer list is left without a place rather than parsed again for each of them
MOST_WORK = 2_000_000  # characters read; nobody writes so much by hand


def lines_of_keys(text: str, root: tuple[str, ...] = ()) -> Mapping[tuple[str, ...], int]:
    """Path below `root` (a section, or a section and a key) to its line. A key it cannot place is left out."""
    places: dict[tuple[str, ...], int] = {}
    header = ""
    for start, statement in _statements(text, root):
        if statement.lstrip().startswith("["):
            header = statement
        try:
            found: object = tomllib.loads(statement if header == statement else f"{header}\n{statement}")
        except ValueError:
            return places
        for part in root:
            found = found.get(part) if isinstance(found, dict) else None
        if isinstance(found, dict):
            for section, table in found.items():
                places.setdefault((section,), start)
                for key in table if isinstance(table, dict) else ():
                    places.setdefault((section, key), start)
    return places


def _statements(text: str, root: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    ours = re.compile(r"\s*\[+\s*" + r"\s*\.\s*".join(root) + r"\b")
    inside = not root  # what other tools keep in the file is passed over unread: it may be long
    statement: list[str] = []
    work = 0
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if not statement:
            if root and line.lstrip().startswith("["):
                inside = ours.match(line) is not None
            if not inside or not line.strip() or line.lstrip().startswith("#"):
                continue
        statement.append(line)
        # Lines can be broken inside of a list or a long string alone: only where one may end, it is worth a look.
        if len(statement) == 1 or ENDS.search(line):
            whole = "\n".join(statement)
            work += len(whole)
            if _is_whole(whole):
                yield number - len(statement) + 1, whole
                statement = []
        if len(statement) >= LONGEST_STATEMENT or work > MOST_WORK:
            return


def _is_whole(statement: str) -> bool:
    try:
        tomllib.loads(statement)
    except ValueError:
        return False
    return True
