"""The consent of the user that one sync may delete most files of the box, in `.watchtest/accept-shrink`."""

from __future__ import annotations

import time
from pathlib import Path

from watchtest.errors import WorkspaceError
from watchtest.workspace.folder import FOLDER, make_folder

CONSENT_VALID_S = 600.0
"""A consent that was not needed must not allow a loss next week."""


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
