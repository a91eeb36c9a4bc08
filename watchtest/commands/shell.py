"""`watchtest shell`: a shell in the box, on a terminal of its own."""

from __future__ import annotations

import argparse
import sys

from watchtest.client.settings import add_engine, engine_flag
from watchtest.commands.exec import say
from watchtest.errors import UsageError

# The nicest shell that is there.
SHELL = "command -v bash >/dev/null 2>&1 && exec bash; exec sh"


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("shell", help="a shell in the box")
    add_engine(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.boxes.protocols import ExecMode
    from watchtest.client.box_visit import visit
    from watchtest.client.settings import project_of

    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise UsageError("shell: this is not a terminal", hint="for a script: watchtest exec -- sh -c '…'")
    project = project_of(arguments, engine_flag(arguments))
    return visit(project, ["/bin/sh", "-c", SHELL], ExecMode.TERMINAL, say)
