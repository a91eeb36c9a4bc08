"""`watchtest exec [-d] -- CMD…`: a command in the box, on this terminal or left running. What it changes, stays."""

from __future__ import annotations

import argparse
import re
import secrets
import sys
from pathlib import PurePosixPath

from watchtest.client.settings import add_engine, engine_flag
from watchtest.core.text import clean
from watchtest.errors import BoxError, UsageError

# Its output goes where `watchtest logs` finds it; the shell makes way for the command.
DETACHED = 'mkdir -p "$1" && exec >>"$1/$2.log" 2>&1 && shift 2 && exec "$@"'


KNOWN = 'command -v "$1" >/dev/null 2>&1'


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("exec", help="run a command in the box")
    parser.add_argument("-d", "--detach", action="store_true", help="leave it running; `watchtest logs NAME` shows it")
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- CMD…")
    add_engine(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.boxes.protocols import ExecMode
    from watchtest.client.box_visit import ready, visit, visited_provider
    from watchtest.client.settings import project_of

    argv = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    if not argv:
        raise UsageError("exec: no command given", hint="write it after two dashes: watchtest exec -- ls -l")
    project = project_of(arguments, engine_flag(arguments))
    if not arguments.detach:
        return visit(project, argv, ExecMode.ATTACHED, say)
    provider = visited_provider(project, say)
    name = f"{log_name(argv)}-{secrets.token_hex(2)}"
    try:
        environment = ready(project, provider, say)
        known = provider.execute(["/bin/sh", "-c", KNOWN, "sh", argv[0]], environment.variables, environment.path_first)
        if known != 0:
            raise BoxError(f"exec: there is no {argv[0]} in the box")
        command = ["/bin/sh", "-c", DETACHED, "sh", f"{provider.home}/logs", name, *argv]
        provider.execute(command, environment.variables, environment.path_first, ExecMode.DETACHED)
    finally:
        provider.close()
    print(f"started {name}; its output: watchtest logs {name}")
    return 0


def log_name(argv: list[str]) -> str:
    """After the program: under this, and a few digits, its output is kept."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", PurePosixPath(argv[0]).name).strip("-.") or "command"


def say(text: str) -> None:
    """Some of it comes from inside the box."""
    print(f"watchtest: {clean(text)}", file=sys.stderr, flush=True)
