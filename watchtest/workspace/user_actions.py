"""What the user has done to the box by hand, and has allowed the watcher to do, in files in `.watchtest`.

Manual changes, one command per line in `by-hand`, are reported when the box that has them is deleted. The consent in
`accept-shrink` allows one sync to delete most files of the box.
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from watchtest.errors import WorkspaceError
from watchtest.workspace.folder import FOLDER, make_folder

CHANGES_LIMIT = 200
READ_ONLY = frozenset({"cat", "ls", "pwd", "echo", "head", "tail", "grep", "find", "env", "ps", "which", "true", "wc"})
"""Programs that change nothing."""
CONSENT_VALID_S = 600.0
"""A consent that was not needed must not allow a loss next week."""


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


def grant_consent(workspace: Path) -> None:
    file = _consent_file(workspace)
    try:
        make_folder(file.parent)
        file.touch()
    except OSError as error:
        raise WorkspaceError(f"{file} cannot be written: {error.strerror}") from error


def has_consent(workspace: Path) -> bool:
    try:
        return time.time() - _consent_file(workspace).stat().st_mtime < CONSENT_VALID_S
    except OSError:
        return False


def use_consent(workspace: Path) -> bool:
    """Return whether there is a consent, and use it up."""
    is_given = has_consent(workspace)
    _consent_file(workspace).unlink(missing_ok=True)
    return is_given


def _consent_file(workspace: Path) -> Path:
    return workspace / FOLDER / "accept-shrink"
