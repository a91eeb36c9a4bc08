"""Service files that start the watcher of a workspace with the user's session: systemd on Linux, launchd on macOS.

Only `write` touches the disk, and it overwrites nothing that watchtest has not written.
"""

from __future__ import annotations

import plistlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from watchtest.errors import WorkspaceError
from watchtest.workspace.folder import replace_file

MARK = "# written by `watchtest init --service`; run it again when watchtest, its Python or the PATH has changed"
UNIT = """\
{mark}
[Unit]
Description=watchtest on {description}

[Service]
ExecStart={command}
Environment={path}
Restart=on-failure
RestartSec=5
# Wrong settings, or another watcher is running: trying again would not help.
RestartPreventExitStatus=2
# The watcher ends its own runs and then its box.
KillMode=mixed
TimeoutStopSec=30

[Install]
WantedBy=default.target
"""


@dataclass(frozen=True, slots=True)
class WatcherService:
    """The command to start, and the name of the service."""

    name: str
    """Unique to the workspace; letters, digits, dots and dashes."""
    workspace: Path
    argv: Sequence[str]
    path: str
    """The PATH of the calling shell, because that of a session manager has little in it."""


@dataclass(frozen=True, slots=True)
class ServiceFile:
    file: Path
    content: bytes
    next_steps: tuple[str, ...]


def systemd_unit(service: WatcherService, config_home: Path) -> ServiceFile:
    _check(service)
    name = f"watchtest-{service.name}.service"
    content = UNIT.format(
        mark=MARK,
        description=_specifiers(str(service.workspace)),
        command=" ".join([_quoted(service.argv[0]), *map(_argument, service.argv[1:])]),
        path=_quoted(f"PATH={service.path}"),
    )
    steps = (
        f"systemctl --user daemon-reload && systemctl --user enable --now {name}",
        f"systemctl --user status {name}    # show its state",
        f"systemctl --user disable --now {name}    # remove it",
        "loginctl enable-linger    # to run it while you are not logged in",
    )
    return ServiceFile(config_home / "systemd" / "user" / name, content.encode(), steps)


def launchd_plist(service: WatcherService, home: Path) -> ServiceFile:
    _check(service)
    label = f"watchtest.{service.name}"
    content: dict[str, Any] = {
        "Label": label,
        "ProgramArguments": list(service.argv),
        "WorkingDirectory": str(service.workspace),
        "EnvironmentVariables": {"PATH": service.path},
        "RunAtLoad": True,
        # Not after an exit code: trying again does not help against wrong settings or another watcher.
        "KeepAlive": {"Crashed": True},
    }
    file = home / "Library" / "LaunchAgents" / f"{label}.plist"
    quoted = shlex.quote(str(file))
    steps = (
        f"launchctl bootstrap gui/$(id -u) {quoted}",
        f"launchctl print gui/$(id -u)/{label}    # show its state",
        f"launchctl bootout gui/$(id -u)/{label} && rm {quoted}    # remove it",
    )
    return ServiceFile(file, plistlib.dumps(content), steps)


def write(wanted: ServiceFile) -> None:
    """Write the file. Raises WorkspaceError if there is one that watchtest has not written."""
    file = wanted.file
    try:
        if file.exists() and not is_ours(file.read_bytes()):
            raise WorkspaceError(f"{file} exists and was not written by watchtest", hint="move it away first")
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, wanted.content)
    except OSError as error:
        raise WorkspaceError(f"{file} cannot be written: {error.strerror}") from error


def is_ours(content: bytes) -> bool:
    """Return whether `init --service` of any version has written this."""
    if content.startswith(MARK.partition(";")[0].encode()):
        return True
    try:
        document = plistlib.loads(content)
        return str(document["Label"]).startswith("watchtest.") and "--silent" in document["ProgramArguments"]
    except (plistlib.InvalidFileException, ExpatError, ValueError, LookupError, TypeError, AttributeError):
        return False


def _check(service: WatcherService) -> None:
    for text in (*service.argv, service.path):
        if any(ord(letter) < 32 or ord(letter) == 127 or "\ud800" <= letter <= "\udfff" for letter in text):
            text = f"{text!r}: a service file cannot hold control characters or text that is not UTF-8"
            raise WorkspaceError(text, hint="rename the folder")


def _specifiers(text: str) -> str:
    """Escape `%`, which starts a specifier of systemd."""
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_specifiers(escaped)}"'


def _argument(text: str) -> str:
    """Quote an argument. Unlike in the program itself, systemd expands variables in it."""
    return _quoted(text.replace("$", "$$"))
