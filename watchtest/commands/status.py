"""`watchtest status`: what the status file says, and whether its writer still lives. Reads files alone.

Prompts and editors call it all the time: it imports nothing that is not in every Python, and no view but words.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from watchtest import workspace
from watchtest.errors import WorkspaceError
from watchtest.views.statuswords import block, line
from watchtest.views.text import encodable

SCHEMA = "watchtest.status"
SCHEMA_VERSION = 1
START = "start the watcher with: watchtest watch"
MISSED_HEARTBEATS = 3

Document = dict[str, Any]


class Life(NamedTuple):
    """What became of the writer: `trouble` is empty while it is alive or left in good order."""

    is_alive: bool
    trouble: str


# The type of add_subparsers' answer is private to argparse
def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "status",
        help="tell the last verdict; needs no engine",
        description="Tell what the status file says. Exit code: 0 green and up to date, 1 red or not known, "
        "2 no status file, 4 watcher dead or degraded, 5 no tests.",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the whole document, with `alive` added")
    form.add_argument("--line", action="store_true", help="one line, for a prompt or a status bar")
    form.add_argument("--schema", action="store_true", help="the JSON Schema of the status file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.schema:
        from watchtest.views.statusschema import status_schema  # heavy, and rarely asked for

        print(json.dumps(status_schema(), indent=2))
        return 0
    folder = workspace.find(arguments.workspace or Path()) / workspace.FOLDER
    now = time.time()
    document, life = read(folder, now)
    if arguments.json:
        answer = json.dumps(document | {"alive": life.is_alive}, indent=2)
    elif arguments.line:
        answer = line(document, life.trouble, now)
    else:
        answer = block(document, life.trouble, now, has_colour=_has_colour())
    print(encodable(answer, sys.stdout.encoding))
    return exit_code(document, life)


def read(folder: Path, now: float) -> tuple[Document, Life]:
    """The document in `folder` and the life of its writer, looked at until the two belong together."""
    document = load(folder / "status.json")
    life = life_of(folder, document, now)
    if life.trouble:
        # It may have stopped in good order between the two looks.
        document = load(folder / "status.json")
        life = life_of(folder, document, now)
    return document, life


def load(path: Path) -> Document:
    """The document, if it is one that this version understands."""
    try:
        document = json.loads(path.read_bytes())
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


def life_of(folder: Path, document: Document, now: float) -> Life:
    """Whether the writer lives, by the lock that its system frees when it dies, then by its heartbeat."""
    if document["activity"] == "stopped":
        return Life(False, "")
    late_s = _silence_s(folder, now)
    limit_s = MISSED_HEARTBEATS * _number(document["writer"], "heartbeat_s", 5.0)
    is_silent = late_s is None or late_s > limit_s
    is_held = is_locked(folder / "lock")
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


def _silence_s(folder: Path, now: float) -> float | None:
    try:
        return now - (folder / "heartbeat").stat().st_mtime
    except OSError:  # no heartbeat was ever seen
        return None


def is_locked(path: Path) -> bool | None:
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


def _is_locked_elsewhere(path: Path) -> bool:
    import filelock

    try:
        with filelock.FileLock(path, timeout=0):
            return False
    except filelock.Timeout:
        return True


def _number(holder: object, key: str, otherwise: float) -> float:
    value = holder.get(key) if isinstance(holder, dict) else None
    return value if isinstance(value, int | float) else otherwise


def _has_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
