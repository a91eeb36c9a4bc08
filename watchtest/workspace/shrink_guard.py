"""The guard against a sync that would delete most of the box; the user's consent is `.watchtest/accept-shrink`."""

from __future__ import annotations

import time
from pathlib import Path

from watchtest.core.model import Lane
from watchtest.errors import SourceShrank
from watchtest.workspace.folder import FOLDER, OwnFolder
from watchtest.workspace.lock import unwritable

NAME = "accept-shrink"

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
    folder = OwnFolder(workspace / FOLDER)
    try:
        folder.make()
        folder.replace(NAME, b"")
    except OSError as error:
        raise unwritable(folder.path, error) from error


def has_consent(workspace: Path) -> bool:
    status = OwnFolder(workspace / FOLDER).stat(NAME)
    return status is not None and abs(time.time() - status.st_mtime) < CONSENT_VALID_S


def _use_consent(workspace: Path) -> bool:
    """Return whether there is a consent, and use it up."""
    is_given = has_consent(workspace)
    OwnFolder(workspace / FOLDER).remove(NAME)
    return is_given
