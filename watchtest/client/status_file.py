"""Reads the status file: what it says, whether its writer still lives, and what a shell hears of both.

Prompts ask all the time, so this imports as little as Python lets it: no pathlib, no typing, no dataclasses.
"""

from __future__ import annotations

import json
import os
import sys
import time

from watchtest.core.text import encodable
from watchtest.errors import UsageError, WorkspaceError
from watchtest.views.status.status_words import line
from watchtest.workspace.folder import FOLDER, workspace_root

TYPE_CHECKING = False  # typing itself would cost more than all that is done here
if TYPE_CHECKING:
    from typing import Any

    Document = dict[str, Any]
    Place = str | os.PathLike[str]

SCHEMA = "watchtest.status"
SCHEMA_VERSION = 1
START = "start the watcher with: watchtest watch"
MISSED_HEARTBEATS = 3
LANES = ("save", "stage", "commit")


class Life:
    """What became of the writer: `trouble` is empty while it is alive or left in good order."""

    __slots__ = ("is_alive", "trouble")

    def __init__(self, is_alive: bool, trouble: str) -> None:
        self.is_alive = is_alive
        self.trouble = trouble


def glance(start: str, lane: str | None = None) -> int:
    """`watchtest status --line`."""
    now = time.time()
    document, life = read(f"{workspace_root(start)}/{FOLDER}", now)
    document = of_lane(document, lane)
    say(line(document, life.trouble, now))
    return exit_code(document, life)


def say(text: str) -> None:
    sys.stdout.write(encodable(text, sys.stdout.encoding) + "\n")


def read(folder: Place, now: float) -> tuple[Document, Life]:
    """The document in `folder` and the life of its writer, looked at until the two belong together."""
    path = os.path.join(folder, "status.json")
    document = load(path)
    life = life_of(folder, document, now)
    if life.trouble:
        # It may have stopped in good order between the two looks.
        document = load(path)
        life = life_of(folder, document, now)
    return document, life


def load(path: Place) -> Document:
    """The document, if it is one that this version understands."""
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read())
    except FileNotFoundError as error:
        raise WorkspaceError(f"{path}: no status file; nothing has watched this workspace yet", hint=START) from error
    except OSError as error:
        raise WorkspaceError(f"{path}: cannot be read ({error.strerror or error})", hint=START) from error
    except (ValueError, RecursionError) as error:
        raise WorkspaceError(
            f"{path}: not a whole JSON document ({error})", hint=f"it is written anew by each watcher; {START}"
        ) from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise WorkspaceError(f"{path}: not a status file of watchtest", hint=f"remove it, then {START}")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise WorkspaceError(
            f"{path}: schema_version {version!r}; this watchtest reads version {SCHEMA_VERSION}",
            hint="the watcher is another version of watchtest: use the same one for both",
        )
    missing = [key for key in ("writer", "activity", "verdict", "pending", "lanes") if key not in document]
    if missing:
        raise WorkspaceError(f"{path}: incomplete, no {', '.join(missing)}", hint=f"remove it, then {START}")
    return document


def of_lane(document: Document, lane: str | None) -> Document:
    """The document with this lane at its top, as if it were the only one that is on."""
    if lane is None:
        return document
    lanes = document["lanes"] if isinstance(document["lanes"], dict) else {}
    found = lanes.get(lane)
    if not isinstance(found, dict) or not {"activity", "verdict", "pending"} <= found.keys():
        on = ", ".join(name for name in LANES if lanes.get(name)) or "none"
        raise UsageError(f"--lane {lane}: the {lane} lane is off", hint=f"on: {on}; see [triggers] in config.toml")
    return {**document, **found, "lanes": {name: found if name == lane else None for name in LANES}}


def life_of(folder: Place, document: Document, now: float) -> Life:
    """Whether the writer lives, by the lock that its system frees when it dies, then by its heartbeat."""
    if document["activity"] == "stopped":
        return Life(False, "")
    late_s = _silence_s(folder, now)
    limit_s = MISSED_HEARTBEATS * _number(document["writer"], "heartbeat_s", 5.0)
    is_silent = late_s is None or late_s > limit_s
    is_held = is_locked(os.path.join(folder, "lock"))
    if is_held is False or (is_held is None and is_silent):
        return Life(False, "watcher is not running (died)")
    if is_silent:
        since = "" if late_s is None else f" for {late_s:.0f}s"
        return Life(True, f"watcher is not responding{since}")
    return Life(True, "")


def exit_code(document: Document, life: Life) -> int:
    """0 only for what is known to be green, of the code as it is, by a writer that can be believed."""
    if life.trouble or document["activity"] == "degraded":
        return 4
    is_pending = _number(document["pending"], "changes", 1) > 0
    match document["verdict"]:
        case "passed" if not is_pending:
            return 0
        case "no_tests" if not is_pending:
            return 5
        case _:
            return 1


def _silence_s(folder: Place, now: float) -> float | None:
    try:
        return now - os.stat(os.path.join(folder, "heartbeat")).st_mtime
    except OSError:  # no heartbeat was ever seen
        return None


def is_locked(path: Place) -> bool | None:
    """Whether somebody holds the lock; None where that cannot be known (swept away, not readable)."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        try:
            import fcntl
        except ImportError:
            return _is_locked_elsewhere(path)
        try:
            # filelock holds an exclusive flock. A shared one tells, and two askers do not take each other for it.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return None
        return False
    finally:
        os.close(descriptor)


def _is_locked_elsewhere(path: Place) -> bool:
    import filelock

    try:
        with filelock.FileLock(path, timeout=0):
            return False
    except filelock.Timeout:
        return True


def _number(holder: object, key: str, otherwise: float) -> float:
    value = holder.get(key) if isinstance(holder, dict) else None
    return value if isinstance(value, int | float) else otherwise
