"""The user's consent that a source may lose most of its files. A command grants it; one sync uses it up."""

from __future__ import annotations

import time
from pathlib import Path

from watchtest.errors import WorkspaceError
from watchtest.workspace.folder import FOLDER, make_folder

VALID_S = 600.0
"""An unused consent expires, so that it does not permit an accident later."""


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
    """Return whether there is consent, and use it up."""
    is_granted = has_consent(workspace)
    _file(workspace).unlink(missing_ok=True)
    return is_granted
