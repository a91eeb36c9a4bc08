"""Finds the line of each key in a TOML file, which tomllib does not report.

The text is split into statements, where a statement ends at the first line with which it parses by itself. So lines
inside a multi-line string or list are never taken for keys.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping

ENDS = re.compile(r"""[\]}]|\'{3}|"{3}""")
STATEMENT_LIMIT = 200  # lines; a longer list would be parsed again for each line, so its line is not reported
WORK_LIMIT = 2_000_000  # characters parsed


def lines_of_keys(text: str, root: tuple[str, ...] = ()) -> Mapping[tuple[str, ...], int]:
    """Return the line of each section and key below `root`, as far as they can be found. `text` must be valid TOML."""
    lines: dict[tuple[str, ...], int] = {}
    header = ""
    for start, statement in _statements(text, root):
        if statement.lstrip().startswith("["):
            header = statement
        try:
            found: object = tomllib.loads(statement if header == statement else f"{header}\n{statement}")
        except ValueError:
            return lines
        for part in root:
            found = found.get(part) if isinstance(found, dict) else None
        if isinstance(found, dict):
            for section, table in found.items():
                lines.setdefault((section,), start)
                for key in table if isinstance(table, dict) else ():
                    lines.setdefault((section, key), start)
    return lines


def _statements(text: str, root: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    ours = re.compile(r"\s*\[+\s*" + r"\s*\.\s*".join(root) + r"\b")
    inside = not root  # tables of other tools are skipped unread: they may be long
    statement: list[str] = []
    work = 0
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if not statement:
            if root and line.lstrip().startswith("["):
                inside = ours.match(line) is not None
            if not inside or not line.strip() or line.lstrip().startswith("#"):
                continue
        statement.append(line)
        # Only lists and long strings span lines, so parse only where one may end.
        if len(statement) == 1 or ENDS.search(line):
            whole = "\n".join(statement)
            work += len(whole)
            if _is_complete(whole):
                yield number - len(statement) + 1, whole
                statement = []
        if len(statement) >= STATEMENT_LIMIT or work > WORK_LIMIT:
            return


def _is_complete(statement: str) -> bool:
    try:
        tomllib.loads(statement)
    except ValueError:
        return False
    return True
