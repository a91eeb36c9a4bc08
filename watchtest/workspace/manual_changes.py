"""Commands with which the user changed the box by hand, one per line in `.watchtest/by-hand`.

They are reported when the box that has these changes is deleted.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from watchtest.workspace.folder import FOLDER, make_folder

CHANGES_LIMIT = 200
READ_ONLY = frozenset({"cat", "ls", "pwd", "echo", "head", "tail", "grep", "find", "env", "ps", "which", "true", "wc"})
"""Programs that change nothing."""


def record_change(workspace: Path, argv: list[str]) -> None:
    """Record a command that ended well and may have changed the box."""
    if Path(argv[0]).name in READ_ONLY:
        return
    file = _changes_file(workspace)
    try:
        make_folder(file.parent)
        lines = [*_read(file), shlex.join(argv).replace("\n", " ")]
        file.write_text("".join(f"{line}\n" for line in lines[-CHANGES_LIMIT:]), encoding="utf-8")
    except OSError:
        return  # the command itself has succeeded


def has_changes(workspace: Path) -> bool:
    return _changes_file(workspace).exists()


def take_changes(workspace: Path) -> tuple[str, ...]:
    """Return the commands and forget them, because the box is deleted or kept as a snapshot."""
    lines = _read(_changes_file(workspace))
    _changes_file(workspace).unlink(missing_ok=True)
    return tuple(lines)


def _changes_file(workspace: Path) -> Path:
    return workspace / FOLDER / "by-hand"


def _read(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
