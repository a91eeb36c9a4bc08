"""`watchtest shell`: open a shell in the box.

Open a shell in the box of the save lane. What you change there stays.

    watchtest shell
"""

from __future__ import annotations

import argparse
import sys

from watchtest.commands import add_engine, load_project, say
from watchtest.errors import UsageError

SHELL = "command -v bash >/dev/null 2>&1 && exec bash; exec sh"
add_options = add_engine


def run(arguments: argparse.Namespace) -> int:
    from watchtest.boxes.protocols import ExecMode
    from watchtest.client.box_access import run_in_box

    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise UsageError("shell: this is not a terminal", hint="in a script, use: watchtest exec -- sh -c '…'")
    project = load_project(arguments)
    return run_in_box(project, ["/bin/sh", "-c", SHELL], ExecMode.TERMINAL, say)
