"""What the user did in the box by hand since it was made or kept: told when that box is gone, never just missing.

One command a line in `.watchtest/by-hand`. Only what ended well and may have changed something is worth a line.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from watchtest.workspace.folder import FOLDER, make_folder

NAME = "by-hand"
LINES_LIMIT = 200
LOOKS_ONLY = frozenset({"cat", "ls", "pwd", "echo", "head", "tail", "grep", "find", "env", "ps", "which", "true", "wc"})


def record(workspace: Path, argv: list[str]) -> None:
    if Path(argv[0]).name in LOOKS_ONLY:
        return
    folder = workspace / FOLDER
    try:
        make_folder(folder)
        lines = [*_read(folder / NAME), shlex.join(argv).replace("\n", " ")]
        (folder / NAME).write_text("".join(f"{line}\n" for line in lines[-LINES_LIMIT:]), encoding="utf-8")
    except OSError:
        return  # a courtesy, no more: the command has done what it should


def exist(workspace: Path) -> bool:
    return (workspace / FOLDER / NAME).exists()


def take(workspace: Path) -> tuple[str, ...]:
    """What was done by hand, and from now on is not there any more, or is kept."""
    file = workspace / FOLDER / NAME
    lines = _read(file)
    file.unlink(missing_ok=True)
    return tuple(lines)


def _read(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
