"""Find the root of a workspace, and create its `.watchtest` folder.

Every command imports this module, so it imports neither git nor, at the top, pathlib.
"""

from __future__ import annotations

import os

from watchtest.errors import WorkspaceError

TYPE_CHECKING = False  # importing typing and pathlib would take longer than all of `watchtest status --line`
if TYPE_CHECKING:
    from pathlib import Path

FOLDER = ".watchtest"
"""watchtest's folder in a workspace: ignored by git, never watched, never synced."""


def find_workspace(start: Path | None = None) -> Path:
    """Return the git top level around `start` (default: the current folder); outside of git, the folder itself."""
    from pathlib import Path

    return Path(workspace_root(start or "."))


def workspace_root(start: str | Path) -> str:
    """Do the same as `find_workspace`, but without importing pathlib."""
    try:
        folder = os.path.realpath(start, strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        text = f"{start}: no such folder ({getattr(error, 'strerror', None) or error})"
        raise WorkspaceError(text, hint="change to a folder that exists, or name one with -C FOLDER") from error
    if not os.path.isdir(folder):
        raise WorkspaceError(f"{start}: not a folder", hint="name the folder of your project with -C FOLDER")
    home = os.path.expanduser("~")
    candidate = folder
    while True:
        if candidate == home and folder != home:
            return folder  # a home folder in git, for its dot-files, is not the project of everything below it
        if os.path.lexists(os.path.join(candidate, ".git")):
            return candidate
        above = os.path.dirname(candidate)
        if above == candidate:
            return folder
        candidate = above


def make_folder(folder: Path) -> bool:
    """Create the `.watchtest` folder with a .gitignore for itself. Return whether it was missing or emptied.

    Parents are not created: a deleted workspace must not come back as an empty folder.
    """
    folder.mkdir(exist_ok=True)
    ignore = folder / ".gitignore"
    if os.path.lexists(ignore):
        return False
    fresh = folder / f".gitignore.{os.getpid()}"
    fresh.write_bytes(b"*\n")
    fresh.replace(ignore)
    return True


def replace_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write `content` to `path` so that readers see either the complete old file or the complete new one."""
    temporary = path.with_name(f".{path.name}.new")
    # There is only one writer, so an existing file is left over; and O_EXCL never writes through a link.
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
