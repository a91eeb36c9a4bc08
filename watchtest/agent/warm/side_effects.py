"""Which audit events of the interpreter are side effects, and what an import leaves behind in its process.

Judges events; installs no audit hook itself.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, List, Optional, Tuple

NOTICEABLE = (
    *("os.", "shutil.", "subprocess.", "socket.", "sqlite3.", "tempfile.", "pty.", "ftplib.", "http.", "smtplib."),
    *("urllib.", "webbrowser.", "signal.", "syslog.", "fcntl.flock", "fcntl.lockf", "_thread.start"),
)
HARMLESS = frozenset(
    {"os.listdir", "os.scandir", "os.walk", "os.fwalk", "os.listxattr", "os.getxattr", "os.putenv", "os.unsetenv",
     "os.chdir", "os.fchdir", "os.add_dll_directory", "socket.__new__", "socket.gethostname"}
)  # fmt: skip
CREATING = ("open", "os.mkdir", "os.rename", "os.link", "os.symlink", "tempfile.mkstemp", "tempfile.mkdtemp")
LOOKING = ("open", "os.listdir", "os.scandir")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def side_effect(event: str, arguments: Tuple[Any, ...]) -> str:
    """Return a description of what other processes would notice of this event; "" if nothing."""
    if event == "open":
        path = _path(arguments[0])
        return "open " + path if path is not None and _is_writing(arguments) and not _is_harmless(path) else ""
    if not event.startswith(NOTICEABLE) or event in HARMLESS:
        return ""
    path = _path(arguments[0]) if arguments else None
    if path is not None and ("__pycache__" in path or (event == "os.mkdir" and os.path.isdir(path))):
        return ""  # compiled modules may be written at any time
    return "{} {}".format(event, path if path is not None else "").strip()


def created(event: str, arguments: Tuple[Any, ...]) -> Optional[str]:
    """Return the path that this event creates, if any."""
    if event not in CREATING:
        return None
    path = _path(arguments[1 if event in ("os.rename", "os.link", "os.symlink") else 0])
    if path is None or _is_harmless(path) or (event == "open" and not _is_writing(arguments)):
        return None
    return path


def bound_address(event: str, arguments: Tuple[Any, ...]) -> Optional[str]:
    """Return the address that this event binds, unless the system chooses the port, which cannot conflict."""
    if event != "socket.bind":
        return None
    address = arguments[1]
    is_any = isinstance(address, tuple) and len(address) > 1 and address[1] == 0
    return None if is_any else str(address)


def opened_for_reading(event: str, arguments: Tuple[Any, ...]) -> Optional[str]:
    """Return the file that this event opens for reading, if any."""
    return _path(arguments[0]) if event == "open" and not _is_writing(arguments) else None


def is_in(folder: str, argument: Any) -> bool:
    """Return whether the argument is a path inside this folder. Imports look at the folder itself (sys.path)."""
    path = _path(argument)
    return path is not None and path.startswith(folder + os.sep)


def _is_writing(arguments: Tuple[Any, ...]) -> bool:
    return isinstance(arguments[2], int) and bool(arguments[2] & WRITING)


def _is_harmless(path: str) -> bool:
    """Return whether writing there is no side effect: bytecode, the null device, a nameless file in a folder."""
    return "__pycache__" in path or path == os.devnull or os.path.isdir(path)


def _path(argument: Any) -> Optional[str]:
    """Return the absolute path; None for an open file, whose opening was an event of its own."""
    return os.path.abspath(os.fsdecode(argument)) if isinstance(argument, (str, bytes, os.PathLike)) else None


def process_state() -> Dict[str, Any]:
    """Return, by description, what an import that only defines things does not change."""
    return {
        "open files": _entries("/proc/self/fd"),
        "child processes": _children(),
        "environment variables": dict(os.environ),
        "sys.path": list(sys.path),
        "the current folder": os.getcwd(),
    }


def threads() -> int:
    return len(_entries("/proc/self/task")) or 1


def _entries(folder: str) -> List[str]:
    try:
        return sorted(entry for entry in os.listdir(folder) if os.path.lexists(os.path.join(folder, entry)))
    except OSError:
        return []


def _children() -> str:
    try:
        with open("/proc/self/task/{}/children".format(os.getpid())) as stream:
            return stream.read()
    except OSError:
        return ""  # not every kernel has this file
