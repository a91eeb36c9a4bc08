"""Record the commands by which the user changed the box, so that their loss can be reported with that of the box.

`.watchtest/by-hand` has one command per line. Failed and read-only commands are not recorded.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from watchtest.workspace.folder import FOLDER, make_folder

NAME = "by-hand"
LINES_LIMIT = 200
READ_ONLY = frozenset({"cat", "ls", "pwd", "echo", "head", "tail", "grep", "find", "env", "ps", "which", "true", "wc"})


def record(workspace: Path, argv: list[str]) -> None:
    if Path(argv[0]).name in READ_ONLY:
        return
    folder = workspace / FOLDER
    try:
        make_folder(folder)
        lines = [*_read(folder / NAME), shlex.join(argv).replace("\n", " ")]
        (folder / NAME).write_text("".join(f"{line}\n" for line in lines[-LINES_LIMIT:]), encoding="utf-8")
    except OSError:
        return  # the command itself has succeeded


def exist(workspace: Path) -> bool:
    return (workspace / FOLDER / NAME).exists()


def take(workspace: Path) -> tuple[str, ...]:
    """Return the recorded commands and forget them: they are lost with the box, or saved in a snapshot."""
    file = workspace / FOLDER / NAME
    lines = _read(file)
    file.unlink(missing_ok=True)
    return tuple(lines)


def _read(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
