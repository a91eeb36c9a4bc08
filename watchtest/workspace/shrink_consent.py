"""The word of the user that a source is right to have lost most of its files. Given by a command, taken once."""

from __future__ import annotations

import time
from pathlib import Path

from watchtest.errors import WorkspaceError
from watchtest.workspace.folder import FOLDER, make_folder

VALID_S = 600.0
"""A word that nobody asked for is not kept for a disaster of next week."""


def _file(workspace: Path) -> Path:
    return workspace / FOLDER / "accept-shrink"


def grant_consent(workspace: Path) -> None:
    try:
        make_folder(_file(workspace).parent)
        _file(workspace).touch()
    except OSError as error:
        raise WorkspaceError(f"{_file(workspace)} cannot be written: {error.strerror}") from error


def has_consent(workspace: Path) -> bool:
    try:
        return time.time() - _file(workspace).stat().st_mtime < VALID_S
    except OSError:
        return False


def use_consent(workspace: Path) -> bool:
    """Whether it was given; it holds for one sync."""
    is_given = has_consent(workspace)
    _file(workspace).unlink(missing_ok=True)
    return is_given
