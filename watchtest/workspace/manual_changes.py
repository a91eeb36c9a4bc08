"""Commands with which the user changed the box by hand, one per line in `.watchtest/by-hand`.

They are reported when the box that has these changes is deleted.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from watchtest.workspace.folder import FOLDER, OwnFolder

NAME = "by-hand"

CHANGES_LIMIT = 200
READ_ONLY = frozenset({"cat", "ls", "pwd", "echo", "head", "tail", "grep", "find", "env", "ps", "which", "true", "wc"})
"""Programs that change nothing."""


def record_change(workspace: Path, argv: list[str]) -> None:
    """Record a command that ended well and may have changed the box."""
    if Path(argv[0]).name in READ_ONLY:
        return
    folder = OwnFolder(workspace / FOLDER)
    try:
        folder.make()
        lines = [*_read(folder), shlex.join(argv).replace("\n", " ")]
        folder.replace(NAME, "".join(f"{line}\n" for line in lines[-CHANGES_LIMIT:]).encode("utf-8", "replace"))
    except OSError:
        return  # the command itself has succeeded


def has_changes(workspace: Path) -> bool:
    return OwnFolder(workspace / FOLDER).stat(NAME) is not None


def take_changes(workspace: Path) -> tuple[str, ...]:
    """Return the commands and forget them, because the box is deleted or kept as a snapshot."""
    folder = OwnFolder(workspace / FOLDER)
    lines = _read(folder)
    folder.remove(NAME)
    return tuple(lines)


def _read(folder: OwnFolder) -> list[str]:
    try:
        return folder.read(NAME).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
