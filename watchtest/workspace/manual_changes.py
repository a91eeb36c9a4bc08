"""Commands with which the user may have changed the box by hand, one per line in `.watchtest/by-hand`.

They make verdicts provisional, and are reported when the box that has these changes is deleted.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from watchtest.errors import WorkspaceError
from watchtest.workspace.folder import FOLDER, OwnFolder

NAME = "by-hand"

CHANGES_LIMIT = 200
READ_ONLY = frozenset({"cat", "ls", "pwd", "echo", "head", "tail", "grep", "ps", "which", "true", "wc"})
"""Programs that change nothing."""
READ_ONLY_PIP = frozenset({"list", "show", "freeze", "check", "--version"})


def record_command(workspace: Path, argv: list[str]) -> None:
    """Record a command that may change the box, before it runs: whether it ends well says nothing about that."""
    program = Path(argv[0]).name
    if program not in READ_ONLY and not (program == "pip" and READ_ONLY_PIP.intersection(argv[1:2])):
        record_change(workspace, shlex.join(argv))


def record_change(workspace: Path, change: str) -> None:
    folder = OwnFolder(workspace / FOLDER)
    line = " ".join(change.split())
    lines = [*(each for each in _read(folder) if each != line), line][-CHANGES_LIMIT:]
    try:
        folder.make()
        folder.replace(NAME, "".join(f"{each}\n" for each in lines).encode("utf-8", "replace"))
    except OSError as error:
        hint = "verdicts from a changed box must be marked, so make the folder writable"
        raise WorkspaceError(f"{workspace / FOLDER / NAME} cannot be written: {error.strerror}", hint=hint) from error


def changes(workspace: Path) -> tuple[str, ...]:
    return tuple(_read(OwnFolder(workspace / FOLDER)))


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
