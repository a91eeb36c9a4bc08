"""The distributions that tests of a workspace turned out to need: remembered in the user's state folder.

Only their names are kept. Which requirement a name stands for is decided anew from the files of the project.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from pathlib import Path

from watchtest.workspace.folder import replace_file

log = logging.getLogger(__name__)
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,200}")
NAMES_LIMIT = 50
"""Far more than tests lack; after that, something else is wrong."""


class AddedDependencies:
    """The names for one workspace; all its watchers and commands share the file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._own: dict[str, None] = {}
        """What this process has added, even if the file cannot be written."""

    def names(self) -> tuple[str, ...]:
        try:
            content = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            content = []
        kept = [name for name in content if isinstance(name, str)] if isinstance(content, list) else []
        return tuple(dict.fromkeys(name for name in (*kept, *self._own) if NAME.fullmatch(name)))[:NAMES_LIMIT]

    def add(self, names: Iterable[str]) -> None:
        self._own |= dict.fromkeys(names)
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._file, json.dumps(self.names()).encode())
        except OSError as error:
            log.warning("%s cannot be written: %s", self._file, error)

    def forget(self) -> None:
        self._own.clear()
        self._file.unlink(missing_ok=True)
