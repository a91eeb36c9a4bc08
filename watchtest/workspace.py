"""Where the workspace is. Looks at names alone: imports no git library, so that every command may pay for it."""

from __future__ import annotations

import os
from pathlib import Path

from watchtest.errors import WorkspaceError

FOLDER = ".watchtest"
"""The workspace's own folder of watchtest: ignored by git, never watched, never synced."""


def find(start: Path) -> Path:
    """The git top level of `start`; where there is none, `start` itself."""
    try:
        folder = start.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise WorkspaceError(
            f"{start}: no such folder ({getattr(error, 'strerror', None) or error})",
            hint="change to a folder that exists, or name one with -C FOLDER",
        ) from error
    if not folder.is_dir():
        raise WorkspaceError(f"{start}: not a folder", hint="name the folder of your project with -C FOLDER")
    home = Path.home()
    for candidate in (folder, *folder.parents):
        if candidate == home and folder != home:
            break  # a home folder kept in git for its dot-files is not the project of everything below it
        if os.path.lexists(candidate / ".git"):
            return candidate
    return folder


def make_folder(folder: Path) -> bool:
    """Make the workspace's own folder, which ignores itself. Whether it was new, or had been swept clean.

    Without parents: when the whole workspace is gone, it must not come back as an empty folder.
    """
    folder.mkdir(exist_ok=True)
    ignore = folder / ".gitignore"
    if os.path.lexists(ignore):
        return False
    fresh = folder / f".gitignore.{os.getpid()}"
    fresh.write_bytes(b"*\n")
    fresh.replace(ignore)
    return True
