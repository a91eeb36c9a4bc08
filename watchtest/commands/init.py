"""`watchtest init`: write a watchtest.toml, git hooks or a user service.

Write a watchtest.toml with what was found in the project. Never overwrites a file that it did not write itself.

    watchtest init
    watchtest init --hooks
"""

from __future__ import annotations

import argparse
import json
import os
import plistlib
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any
from xml.parsers.expat import ExpatError

from watchtest.boxes.protocols import NamedImage, choice_lines
from watchtest.commands import load_project
from watchtest.errors import WorkspaceError
from watchtest.runners.registry import lacking_tools
from watchtest.workspace.folder import find_workspace, open_regular, replace_file

NAME = "watchtest.toml"
TEMPLATE = """\
# The settings of watchtest for this project. `watchtest config show` prints every key and its value.

[triggers]
save = "affected"          # tests to run after a save: off, affected, failed or all

[box]
engine = "auto"            # a container if there is an engine, otherwise the local box
image = {given_image:<19}# or the name of an image; found here: {image}
setup = {given_setup:<19}# or a list of shell commands; found here:
{setup}
"""

MARK = "# written by `watchtest init --hooks`"
HOOK_LIMIT = 4096
"""Ours are shorter, in bytes."""
HOOKS = {
    "pre-commit": "exec watchtest gate --staged\n",
    "pre-push": """\
while read -r _ commit _ _; do
    case "$commit" in *[!0]*) watchtest gate --commit "$commit" </dev/null || exit 1 ;; esac
done
""",
}
SERVICE_MARK = "# written by `watchtest init --service`"
UNIT = """\
{mark}; run it again when watchtest, its Python or the PATH has changed
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


def add_options(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    text = "write git hooks (pre-commit, pre-push) that call the gate, instead"
    what.add_argument("--hooks", action="store_true", help=text)
    text = "write a systemd user unit or a launchd plist, instead"
    what.add_argument("--service", action="store_true", help=text)


def run(arguments: argparse.Namespace) -> int:
    if arguments.service:
        return _write_service(arguments)
    return _write_hooks(arguments) if arguments.hooks else _write_config(arguments)


def _write_service(arguments: argparse.Namespace) -> int:
    from watchtest.wiring import workspace_key

    workspace = load_project(arguments).workspace  # wrong settings must fail here, not when the service starts
    config = ["--config", str(arguments.config.absolute())] if arguments.config is not None else []
    argv = (sys.executable, "-P", "-m", "watchtest", "-C", str(workspace), *config, "watch", "--silent")
    service = WatcherService(workspace_key(workspace), workspace, argv, os.environ.get("PATH", os.defpath))
    if sys.platform == "darwin":
        wanted = launchd_plist(service, Path.home())
    elif sys.platform == "win32":
        raise WorkspaceError("init --service: this system has no user services", hint="use `watchtest start`")
    else:
        home = os.environ.get("XDG_CONFIG_HOME") or ""
        wanted = systemd_unit(service, Path(home) if home.startswith("/") else Path.home() / ".config")
    write_service(wanted)
    print(f"wrote {wanted.file}")
    print(
        "The service gets the PATH of this shell, but no other variable; put what the watcher needs into its settings."
    )
    print("Next:")
    for step in wanted.next_steps:
        print(f"  {step}")
    return 0


@dataclass(frozen=True, slots=True)
class WatcherService:
    """The command to start, and the name of the service."""

    name: str
    """Unique to the workspace; letters, digits, dots and dashes."""
    workspace: Path
    argv: Sequence[str]
    path: str
    """The PATH of the calling shell, because that of a session manager has little in it."""

    def __post_init__(self) -> None:
        for text in (*self.argv, self.path):
            if any(ord(letter) < 32 or ord(letter) == 127 or "\ud800" <= letter <= "\udfff" for letter in text):
                text = f"{text!r}: a service file cannot hold control characters or text that is not UTF-8"
                raise WorkspaceError(text, hint="rename the folder")


@dataclass(frozen=True, slots=True)
class ServiceFile:
    file: Path
    content: bytes
    next_steps: tuple[str, ...]


def systemd_unit(service: WatcherService, config_home: Path) -> ServiceFile:
    name = f"watchtest-{service.name}.service"
    # systemd expands variables in the arguments, but not in the program itself.
    content = UNIT.format(
        mark=SERVICE_MARK,
        description=str(service.workspace).replace("%", "%%"),
        command=" ".join([_quoted(service.argv[0]), *(_quoted(word.replace("$", "$$")) for word in service.argv[1:])]),
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


def write_service(wanted: ServiceFile) -> None:
    """Write the file. Raises WorkspaceError if there is one that watchtest has not written."""
    try:
        if wanted.file.exists() and not is_ours(wanted.file.read_bytes()):
            raise WorkspaceError(f"{wanted.file} exists and was not written by watchtest", hint="move it away first")
        wanted.file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(wanted.file, wanted.content)
    except OSError as error:
        raise WorkspaceError(f"{wanted.file} cannot be written: {error.strerror}") from error


def is_ours(content: bytes) -> bool:
    """Return whether `init --service` of any version has written this."""
    if content.startswith(SERVICE_MARK.encode()):
        return True
    try:
        document = plistlib.loads(content)
        return str(document["Label"]).startswith("watchtest.") and "--silent" in document["ProgramArguments"]
    except (plistlib.InvalidFileException, ExpatError, ValueError, LookupError, TypeError, AttributeError):
        return False


def _quoted(text: str) -> str:
    """Quote a word for systemd, in which `%` starts a specifier."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def _write_hooks(arguments: argparse.Namespace) -> int:
    from watchtest.sources.git import Git

    folder = find_workspace(arguments.workspace)
    git = Git(folder, os.environ)
    hooks = git.hooks()
    if not any(hooks.resolve().is_relative_to(own.resolve()) for own in (folder, git.common())):
        text = f"core.hooksPath leads to {hooks}, outside of this repository: other repositories may use these hooks"
        raise WorkspaceError(text, hint="call `watchtest gate --staged` in your pre-commit hook there yourself")
    for name, body in HOOKS.items():
        print(_write_hook(hooks / name, body))
    return 0


def _write_hook(file: Path, body: str) -> str:
    """Write or update a hook, and return what was done. A hook that is not ours is left alone."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(file) and not _is_our_hook(file):
            lines = indent(body.strip().replace("exec ", ""), "    ")
            return f"{file} exists and was left as it is; to call the gate, add to it:\n{lines}"
        replace_file(file, f"#!/bin/sh\n{MARK}\n{body}".encode(), mode=0o755)
    except OSError as error:
        raise WorkspaceError(f"{file} cannot be written: {error.strerror}") from error
    return f"wrote {file}"


def _is_our_hook(file: Path) -> bool:
    try:
        with os.fdopen(open_regular(str(file), os.O_RDONLY), "rb") as stream:
            return not file.is_symlink() and MARK.encode() in stream.read(HOOK_LIMIT)
    except OSError:
        return False


def _write_config(arguments: argparse.Namespace) -> int:
    from watchtest.wiring import build_detector, build_worktree, project_recipe

    project = load_project(arguments)
    source = build_worktree(project)
    snapshot = source.snapshot()
    recipe = project_recipe(project, source, snapshot)
    origin = recipe.image.name if isinstance(recipe.image, NamedImage) else f"built from {recipe.image.dockerfile}"
    image = _line(f"{origin} ({recipe.because})")
    commands = [_line(command) for command in recipe.commands]
    if recipe.needs_pytest:
        commands.append("pip install pytest   (if it is still missing)")
    box = project.config.box
    content = TEMPLATE.format(
        given_image=json.dumps(box.image) + " ",
        given_setup=json.dumps(box.setup) + " ",
        image=image,
        setup="\n".join(f"#   {command}" for command in commands) or "#   nothing",
    )
    file = project.workspace / NAME
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(content)
    except FileExistsError as error:
        raise WorkspaceError(f"{file} already exists", hint="edit it, or move it away first") from error
    except OSError as error:
        raise WorkspaceError(f"{file} cannot be written: {error.strerror}") from error
    print(f"wrote {file}")
    print(f"  image  {image}")
    for command in commands:
        print(f"  setup  {command}")
    for reason in choice_lines(recipe.choices):
        print(f"  why    {_line(reason)}")
    for runner in build_detector(project, source).specs(snapshot):
        print(f"  tests  {_line(str(runner))}{lacking_tools(runner, recipe.toolchain)}")
    for left_out in snapshot.excluded:
        print(f"  left out  {_line(f'{left_out.path}: {left_out.reason}')}")
    print("Next: watchtest")
    return 0


def _line(text: str) -> str:
    """Return text of the project on one line, without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
