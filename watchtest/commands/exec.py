"""`watchtest exec`: run a command in the box.

Run a command in the box of the save lane. What it changes there stays. Verdicts from a box changed this way are
provisional, and the gate does not use them, until you run `watchtest snapshot` or `watchtest reset`. The exit code is
that of the command.

    watchtest exec -- pip install requests
    watchtest exec -d -- python server.py
"""

from __future__ import annotations

import argparse
import re
import secrets
from contextlib import closing
from pathlib import PurePosixPath

from watchtest.commands import add_engine, load_project, say
from watchtest.errors import BoxError, UsageError

# Sends the output to where `watchtest logs` finds it; the command then replaces the shell.
DETACHED = 'mkdir -p "$1" && exec >>"$1/$2.log" 2>&1 && shift 2 && exec "$@"'
EXISTS = 'command -v "$1" >/dev/null 2>&1'


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "leave it running; `watchtest logs NAME` shows its output"
    parser.add_argument("-d", "--detach", action="store_true", help=text)
    text = "the command and its arguments, after two dashes"
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- CMD…", help=text)
    add_engine(parser)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.boxes.protocols import ExecMode
    from watchtest.client.box_access import prepare_box, provider_in_use, run_in_box
    from watchtest.workspace import manual_changes

    argv = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    if not argv:
        raise UsageError("exec: no command given", hint="write the command after two dashes: watchtest exec -- ls -l")
    project = load_project(arguments)
    if not arguments.detach:
        return run_in_box(project, argv, ExecMode.ATTACHED, say)
    name = f"{log_name(argv)}-{secrets.token_hex(2)}"
    with closing(provider_in_use(project, say)) as provider:
        environment = prepare_box(project, provider, say)
        check = ["/bin/sh", "-c", EXISTS, "sh", argv[0]]
        if provider.execute(check, environment.variables, environment.path_first) != 0:
            raise BoxError(f"exec: there is no {argv[0]} in the box")
        manual_changes.record_command(project.workspace, argv)
        command = ["/bin/sh", "-c", DETACHED, "sh", f"{provider.home}/logs", name, *argv]
        provider.execute(command, environment.variables, environment.path_first, ExecMode.DETACHED)
    print(f"started {name}; its output: watchtest logs {name}")
    return 0


def log_name(argv: list[str]) -> str:
    """Return the first part of the name under which the output of a detached command is kept."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", PurePosixPath(argv[0]).name).strip("-.") or "command"
