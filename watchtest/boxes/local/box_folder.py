"""The folder of a local box: how it is laid out, whose it is, and how it is thrown away with all that runs in it."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from watchtest.boxes.local.local_exec import DETACHED
from watchtest.errors import BoxError
from watchtest.workspace.machine import machine_id

SANDBOX = "WATCHTEST_SANDBOX"
"""The variable by which a sandboxed agent is found again, from outside its pid namespace; the value is its home."""
TREE, HOME, TEMPORARY = "tree", "home", "tmp"
WORKSPACE, HOST, IDENTITY = "workspace", "host", "id"
"""Files that say whose box it is, out of the box's own reach."""


def make_folder(folder: Path, workspace: str) -> None:
    try:
        for name in (TREE, HOME, f"{HOME}/user", TEMPORARY):
            (folder / name).mkdir(parents=True, exist_ok=True)
        if not (folder / IDENTITY).exists():
            _write(folder / IDENTITY, secrets.token_hex(6))
        _write(folder / WORKSPACE, workspace)
        _write(folder / HOST, machine_id())
    except OSError as error:
        raise BoxError(
            f"the folder {error.filename} of the local box cannot be made: {error.strerror}",
            hint="free it, or set XDG_CACHE_HOME to a folder you may write",
        ) from error


def identity_of(folder: Path) -> str:
    """Another after it was thrown away and made anew: what is known of the old box does not hold for the new one."""
    return _text(folder / IDENTITY)


def workspace_of(folder: Path) -> str:
    """The workspace that this box belongs to; nothing if the folder is no box."""
    return _text(folder / WORKSPACE)


def boxes_of(workspace: str, boxes: Path) -> Iterator[Path]:
    """Every box of a workspace among those in a folder."""
    for folder in sorted(boxes.iterdir()) if boxes.is_dir() else ():
        if workspace_of(folder) == workspace:
            yield folder


def remove_box(folder: Path) -> None:
    """The folder, and before it every process of the box that still runs."""
    end_agent(folder)
    end_processes(folder)
    try:
        # Out of the way first: a watcher may be making it anew at this very moment.
        doomed = folder.rename(folder.with_name(f".{folder.name}.{secrets.token_hex(4)}"))
        _remove_tree(doomed)
    except FileNotFoundError:
        return  # somebody was quicker
    except OSError as error:
        raise BoxError(f"{error.filename} of the local box cannot be removed: {error.strerror}") from error


def end_agent(folder: Path) -> None:
    """The agent of this box, sandboxed or not: a watcher that has it finds out, and makes the box anew."""
    from watchtest.agent import box_lock  # not on every system

    end_sandbox(folder)
    box_lock.kill_holder(str(folder / HOME / "agent.lock"))


def end_sandbox(folder: Path) -> None:
    """The agent of this box, if it is sandboxed, and with it all that is in its namespace."""
    from watchtest.agent import box_lock  # not on every system

    box_lock.kill_marked(SANDBOX, str(folder / HOME))


def end_processes(folder: Path) -> None:
    """What was left running in this box, by whatever hand."""
    from watchtest.agent import box_lock

    for variable in (box_lock.JOB_VARIABLE, box_lock.SERVICE_VARIABLE, DETACHED):
        box_lock.kill_marked(variable, str(folder / HOME))


def _remove_tree(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except PermissionError:
        # Tests leave folders behind that even their owner may not write.
        for path, _, _ in os.walk(folder):
            Path(path).chmod(0o700)
        shutil.rmtree(folder)


def _text(file: Path) -> str:
    try:
        return os.fsdecode(file.read_bytes())
    except OSError:
        return ""


def _write(file: Path, text: str) -> None:
    if _text(file) != text:
        file.write_bytes(os.fsencode(text))
