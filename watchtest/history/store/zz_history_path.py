"""Where the history of a workspace lies. Reads `.git` as far as it must; writes nothing."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

FILE_NAME = "history.sqlite3"
POINTER_LIMIT = 4096
"""A `.git` file holds one path; whatever is longer is something else."""


def history_path(state_folder: Path, workspace: Path) -> Path:
    """The history file of the repository `workspace` belongs to: worktrees share it, other folders have their own.

    `state_folder` is watchtest's own folder of the user's state, not the folder of all programs.
    """
    workspace = workspace.resolve()
    common = _common_folder(workspace)
    owner = common or workspace
    name = owner.parent.name if owner.name == ".git" else owner.name.removesuffix(".git")
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:40] or "workspace"
    digest = hashlib.sha256(str(owner).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return state_folder / f"{readable}-{digest}" / FILE_NAME


def _common_folder(workspace: Path) -> Path | None:
    """The folder that all worktrees of a repository share; None where there is no repository to be seen."""
    git = workspace / ".git"
    if git.is_file():
        target = _pointer(git, prefix="gitdir:")
        if target is None:
            return None
        git = workspace / target
    if not git.is_dir():
        return None
    shared = _pointer(git / "commondir")
    return ((git / shared) if shared else git).resolve()


def _pointer(file: Path, prefix: str = "") -> str | None:
    try:
        with file.open("rb") as stream:
            content = stream.read(POINTER_LIMIT).decode("utf-8", "surrogateescape")
    except OSError:
        # Unreadable is as good as not there: the workspace's own path is the key then.
        return None
    return content.removeprefix(prefix).strip("\r\n ") or None if content.startswith(prefix) else None
