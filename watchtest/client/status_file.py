"""Reads the status file, finds out whether its writer is alive, and turns both into an exit code.

Shell prompts call `watchtest status --line` all the time, so this avoids pathlib, typing and dataclasses.
"""

from __future__ import annotations

import json
import os
import sys
import time

from watchtest import exit_codes
from watchtest.core.text import encodable, uncleaned
from watchtest.errors import UsageError, WorkspaceError
from watchtest.views.status.status_words import GREEN, line
from watchtest.workspace.folder import FOLDER, OwnFolder, workspace_root

TYPE_CHECKING = False  # importing typing would take longer than everything done here
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Document = dict[str, Any]
    AnyPath = str | os.PathLike[str]

SCHEMA = "watchtest.status"
SCHEMA_VERSION = 1
START = "start the watcher with: watchtest watch"
MISSED_HEARTBEATS = 3
LANES = ("save", "stage", "commit")


class WriterState:
    """Whether the writer is alive; `trouble` is empty if it is well or has stopped normally."""

    __slots__ = ("is_alive", "trouble")

    def __init__(self, is_alive: bool, trouble: str = "") -> None:
        self.is_alive = is_alive
        self.trouble = trouble


def print_status_line(start: str) -> int:
    """Do what `watchtest status --line` does, and return its exit code."""
    now = time.time()
    document, writer = read_status(f"{workspace_root(start)}/{FOLDER}", now)
    print_text(line(document, writer.trouble, now))
    return exit_code(document, writer)


def print_text(text: str, *, has_colour: bool = False) -> None:
    """Print text; characters that stdout cannot encode become question marks. With colours, it must be clean."""
    stream = uncleaned(sys.stdout) if has_colour else sys.stdout
    stream.write(encodable(text, stream.encoding) + "\n")


def read_status(folder: AnyPath, now: float) -> tuple[Document, WriterState]:
    """Return the document in `folder`, and the state of its writer at the same moment."""
    path = os.path.join(folder, "status.json")
    document = load_status(path)
    writer = writer_state(folder, document, now)
    if writer.trouble:
        # The writer may have stopped normally between the two checks.
        document = load_status(path)
        writer = writer_state(folder, document, now)
    if writer.trouble or not writer.is_alive:
        document = _without_green(document, writer.trouble or "watcher stopped")
    return document, writer


def _without_green(document: Document, doubt: str) -> Document:
    """Return the document with no lane shown as green: the code may have changed, and anyone can write the file."""

    def doubted(lane: Document) -> Document:
        colour = "red" if lane.get("verdict") in ("failed", "error") else "grey"
        return {**lane, "colour": colour, "doubt": doubt}

    lanes = document["lanes"] if isinstance(document["lanes"], dict) else {}
    lanes = {name: doubted(lane) if isinstance(lane, dict) else lane for name, lane in lanes.items()}
    return doubted({**document, "lanes": lanes})


def load_status(path: AnyPath) -> Document:
    """Return the document. Raises WorkspaceError if this version cannot read it."""
    try:
        folder, name = os.path.split(path)
        document = json.loads(OwnFolder(folder).read(name))
    except FileNotFoundError as error:
        raise WorkspaceError(f"{path}: no status file; this workspace has never been watched", hint=START) from error
    except OSError as error:
        raise WorkspaceError(f"{path}: cannot be read ({error.strerror or error})", hint=START) from error
    except (ValueError, RecursionError) as error:
        text = f"{path}: not a complete JSON document ({error})"
        raise WorkspaceError(text, hint=f"every watcher rewrites it; {START}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise WorkspaceError(f"{path}: not a status file of watchtest", hint=f"remove it, then {START}")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        text = f"{path}: schema_version {version!r}; this watchtest reads version {SCHEMA_VERSION}"
        raise WorkspaceError(text, hint="the watcher is another version of watchtest: use the same one for both")
    missing = [key for key in ("writer", "activity", "verdict", "pending", "lanes") if key not in document]
    if missing:
        raise WorkspaceError(f"{path}: incomplete, no {', '.join(missing)}", hint=f"remove it, then {START}")
    return document


def last_status(workspace: AnyPath) -> Document:
    """Return what the watcher of a workspace wrote last; empty if there is nothing that can be read."""
    try:
        return load_status(os.path.join(workspace, FOLDER, "status.json"))
    except WorkspaceError:
        return {}


def is_watched(workspace: AnyPath) -> bool:
    """Return whether a watcher holds the lock; it may not have written its status yet."""
    return is_locked(os.path.join(workspace, FOLDER, "lock")) is True


def of_lane(document: Document, lane: str | None) -> Document:
    """Return the document with this lane at the top level, as if it were the only one that is on."""
    if lane is None:
        return document
    lanes = document["lanes"] if isinstance(document["lanes"], dict) else {}
    found = lanes.get(lane)
    if not isinstance(found, dict) or not {"activity", "verdict", "pending"} <= found.keys():
        on = ", ".join(name for name in LANES if lanes.get(name)) or "none"
        raise UsageError(f"--lane {lane}: the {lane} lane is off", hint=f"on: {on}; see [triggers] in config.toml")
    return {**document, **found, "lanes": {name: found if name == lane else None for name in LANES}}


def writer_state(folder: AnyPath, document: Document, now: float) -> WriterState:
    """Check the lock, which the operating system frees when the writer dies, and then the heartbeat."""
    if document["activity"] == "stopped":
        return WriterState(is_alive=False)
    writer = document["writer"]
    heartbeat = OwnFolder(folder).stat("heartbeat")  # None if there has been none yet
    silent_s = None if heartbeat is None else now - heartbeat.st_mtime
    limit_s = MISSED_HEARTBEATS * _number(writer, "heartbeat_s", 5.0)
    is_silent = silent_s is None or abs(silent_s) > limit_s  # the clock may have been set back
    is_held = is_locked(os.path.join(folder, "lock"))
    if is_held is False or (is_held is None and is_silent):
        return WriterState(is_alive=False, trouble="watcher is not running (died)")
    if is_silent:
        since = f" for {silent_s:.0f}s" if silent_s is not None and silent_s > 0 else ""
        return WriterState(is_alive=True, trouble=f"watcher is not responding{since}")
    if not is_writer(writer):
        return WriterState(is_alive=True, trouble="another process has written this status than the watcher")
    return WriterState(is_alive=True)


def exit_code(document: Document, writer: WriterState) -> int:
    """Return 0 only if the code as it is now is known to be green, and the writer is well."""
    if writer.trouble or document["activity"] == "degraded":
        return exit_codes.BROKEN
    if document.get("colour") == GREEN:
        return exit_codes.OK
    provisional = document.get("provisional")
    if document.get("doubt") or is_outdated(provisional):
        return exit_codes.RED
    if document["verdict"] == "no_tests":
        return exit_codes.NO_TESTS
    return exit_codes.OK if document["verdict"] == "passed" and provisional else exit_codes.RED


def is_outdated(provisional: object) -> bool:
    """Return whether a verdict is provisional because its tests ran with other dependencies than those of the code."""
    return isinstance(provisional, dict) and provisional.get("code") == "dependencies"


def is_locked(path: AnyPath) -> bool | None:
    """Return whether a process holds the lock; None if the file is missing or cannot be checked."""
    folder, name = os.path.split(path)
    try:
        descriptor = OwnFolder(folder).open(name, os.O_RDONLY)
    except (OSError, WorkspaceError):
        return None
    try:
        import fcntl

        # filelock holds an exclusive flock. Try a shared one, so that two checks at once do not disturb each other.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except ImportError:  # Windows
        import filelock

        try:
            with filelock.FileLock(path, timeout=0):
                return False
        except filelock.Timeout:
            return True
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(descriptor)
    return False


BOOT_ID = "/proc/sys/kernel/random/boot_id"


def is_writer(writer: object) -> bool:
    """Return whether the process that a status file names is still running. No repository can know its numbers."""
    if not isinstance(writer, dict) or verified_pid(writer) is not None:
        return isinstance(writer, dict)
    boot_id = proc_content(BOOT_ID)
    if boot_id:
        # In a container, the watcher has a host name and process numbers of its own; the boot is the same.
        return writer.get("boot_id") == boot_id and writer.get("host") != host_name()
    return writer.get("host") == host_name() and _runs(writer.get("pid"))


def verified_pid(writer: Mapping[str, Any]) -> int | None:
    """Return the pid of the writer if that process is still the same one: same machine, boot and start time."""
    pid, start = writer.get("pid"), writer.get("pid_start")
    if not isinstance(pid, int) or not isinstance(start, int) or pid <= 1:
        return None
    if writer.get("host") != host_name() or writer.get("boot_id") != (proc_content(BOOT_ID) or None):
        return None
    stat = proc_stat(pid)
    return pid if stat is not None and int(stat[19]) == start and stat[0] not in ("Z", "X") else None


def proc_stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third on; None if there is no such process, or no /proc."""
    fields = proc_content(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields if len(fields) > 19 else None


def proc_content(file: str) -> str:
    try:
        with open(file, encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:  # there is no such process, or no /proc
        return ""


def host_name() -> str:
    """Do the same as `platform.node`, which is slow to import."""
    if hasattr(os, "uname"):
        return os.uname().nodename
    import platform

    return platform.node()


def _runs(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 1 or os.name == "nt":
        return os.name == "nt"  # there, os.kill would send Ctrl-C
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _number(holder: object, key: str, otherwise: float) -> float:
    value = holder.get(key) if isinstance(holder, dict) else None
    return value if isinstance(value, int | float) else otherwise
