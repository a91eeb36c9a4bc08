"""The folder of a local box: its layout, its owner, and how to remove it with all processes that run in it."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from watchtest.errors import BoxError
from watchtest.workspace.machine import machine_id

SANDBOX = "WATCHTEST_SANDBOX"
"""The variable that identifies a sandboxed agent from outside its pid namespace; its value is the home of the box."""
DETACHED = "WATCHTEST_DETACHED"
"""The variable that identifies a detached command; its value is the home of the box."""
TREE, HOME, TEMPORARY = "tree", "home", "tmp"
"""The last one is /tmp of the box. It lies outside the other two, so that the box cannot replace it by a link."""
WORKSPACE, HOST, IDENTITY = "workspace", "host", "id"
"""Files that identify the box; the box itself cannot change them. A recreated box has a new id, because nothing known
about the old one applies."""
SPARE = "spare"
"""The file that marks the folder which is not in use: the next environment is built in it, or it holds the last one."""
SECOND = ".2"
"""How the name of the second folder of a box ends. An environment cannot be moved, so a box alternates between two."""


def current_folder(folder: Path) -> Path:
    """Return which of the two folders of a box is in use."""
    second = folder.with_name(folder.name + SECOND)
    is_first_spare = (folder / SPARE).exists() or not folder.exists()
    return second if is_first_spare and second.exists() and not (second / SPARE).exists() else folder


def spare_folder(folder: Path) -> Path:
    """Return which of the two folders of a box is not in use."""
    second = folder.with_name(folder.name + SECOND)
    return second if current_folder(folder) == folder else folder


def use_spare(folder: Path) -> None:
    """Let the two folders of a box change places."""
    new, old = spare_folder(folder), current_folder(folder)
    (old / SPARE).touch()
    (new / SPARE).unlink()


def make_folder(folder: Path, workspace: str, *, is_spare: bool = False) -> None:
    try:
        if is_spare:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / SPARE).touch()
        for name in (TREE, HOME, f"{HOME}/user", TEMPORARY):
            (folder / name).mkdir(parents=True, exist_ok=True)
        identity = read_mark(folder, IDENTITY) or secrets.token_hex(6)
        for name, text in {IDENTITY: identity, WORKSPACE: workspace, HOST: machine_id()}.items():
            if read_mark(folder, name) != text:
                (folder / name).write_bytes(os.fsencode(text))
    except OSError as error:
        raise BoxError(
            f"the folder {error.filename} of the local box cannot be created: {error.strerror}",
            hint="make it writable, or set XDG_CACHE_HOME to a folder that you can write",
        ) from error


def read_mark(folder: Path, name: str) -> str:
    """Return the content of such a file; "" if the folder is not a box."""
    try:
        return os.fsdecode((folder / name).read_bytes())
    except OSError:
        return ""


def boxes_of(workspace: str, boxes: Path) -> Iterator[Path]:
    """Yield the boxes of a workspace in the folder `boxes`."""
    for folder in sorted(boxes.iterdir()) if boxes.is_dir() else ():
        if read_mark(folder, WORKSPACE) == workspace:
            yield folder


def remove_box(folder: Path) -> None:
    """End everything that runs in the box, then remove its folder."""
    end_processes(folder)
    try:
        # Rename it first: a watcher may recreate it at this moment.
        _remove_tree(folder.rename(folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")))
    except FileNotFoundError:
        return  # already removed
    except OSError as error:
        raise BoxError(f"{error.filename} of the local box cannot be removed: {error.strerror}") from error


def end_processes(folder: Path) -> None:
    """End the agent of the box, its jobs, services and detached commands."""
    from watchtest.agent import box_lock  # not on every system

    end_sandbox(folder)
    box_lock.signal_holder(str(folder / HOME / "agent.lock"), signal.SIGKILL)  # its watcher recreates the box
    for variable in (box_lock.JOB_VARIABLE, box_lock.SERVICE_VARIABLE, DETACHED):
        box_lock.kill_marked(variable, str(folder / HOME))


def end_sandbox(folder: Path) -> None:
    """End the agent of this box if it is sandboxed, and everything in its namespace with it."""
    from watchtest.agent import box_lock  # not on every system

    box_lock.kill_marked(SANDBOX, str(folder / HOME))


def _remove_tree(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except PermissionError:
        # Tests leave folders behind that even their owner cannot write.
        for path, _, _ in os.walk(folder):
            Path(path).chmod(0o700)
        shutil.rmtree(folder)
