"""The guard against a sync that would delete most of the box; the user's consent is `.watchtest/accept-shrink`."""

from __future__ import annotations

import time
from pathlib import Path

from watchtest.core.model import Lane
from watchtest.errors import SourceShrank, WorkspaceError
from watchtest.workspace.folder import FOLDER, make_folder

SHRINK_FROM = 20
"""Boxes with fewer paths are not guarded: refilling them takes no time."""
CONSENT_VALID_S = 600.0
"""A consent that was not needed must not allow a loss next week."""


def check_shrinkage(workspace: Path, lane: Lane, in_box: int, in_source: int) -> None:
    """Raise SourceShrank if most of the box would be deleted: the source may be an unmounted disk."""
    if in_box < SHRINK_FROM or 2 * in_source >= in_box or _use_consent(workspace):
        return
    raise SourceShrank(
        f"the source of the {lane.value} lane has {in_source} paths, its box {in_box}: most would be deleted",
        hint="if that is intended: `watchtest sync --accept` (or watch.shrink_guard = false)",
    )


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


def _use_consent(workspace: Path) -> bool:
    """Return whether there is a consent, and use it up."""
    is_given = has_consent(workspace)
    _consent_file(workspace).unlink(missing_ok=True)
    return is_given


def _consent_file(workspace: Path) -> Path:
    return workspace / FOLDER / "accept-shrink"
