"""`watchtest status`: print the last verdict; needs no engine.

Print what the status file says; only --wait needs a running watcher. Exit code: 0 green and up to date, 1 red, unknown
or green only with outdated dependencies, 2 no status file, 4 watcher dead or degraded, 5 no tests, 124 no verdict
within --timeout.

    watchtest status --line
    watchtest status --wait --timeout 60
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from watchtest.client.status_file import WriterState, exit_code, of_lane, print_text, read_status
from watchtest.commands import add_lane, add_wait, check_wait, print_json, say
from watchtest.errors import WatchtestError
from watchtest.exit_codes import TIMED_OUT
from watchtest.views.status.status_words import block, line
from watchtest.workspace.folder import FOLDER, find_workspace

TYPE_CHECKING = False  # as in client.status_file
if TYPE_CHECKING:
    from watchtest.client.status_file import Document


def add_options(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the whole document, with `alive` added")
    form.add_argument("--line", action="store_true", help="print one line, for a prompt or a status bar")
    form.add_argument("--schema", action="store_true", help="print the JSON Schema of the status file")
    add_lane(parser)
    add_wait(parser, "wait for a verdict on the code as it is now")


def run(arguments: argparse.Namespace) -> int:
    check_wait(arguments)
    if arguments.schema:
        from watchtest.views.schemas import status_schema

        print_json(status_schema())
        return 0
    if arguments.wait:
        from watchtest.client.watcher import wait_for_verdict

        document, is_in_time = wait_for_verdict(arguments)
        writer = WriterState(is_alive=True)
    else:
        document, writer = read_status(find_workspace(arguments.workspace) / FOLDER, time.time())
        if not (writer.is_alive or writer.trouble or arguments.line):
            document = _compared(document, arguments)
        is_in_time = True
    document = of_lane(document, arguments.lane)
    _print(arguments, document, writer)
    if not is_in_time:
        say(f"no verdict on the code as it is now within {arguments.timeout:g} s")
        return TIMED_OUT
    return exit_code(document, writer)


def _compared(document: Document, arguments: argparse.Namespace) -> Document:
    """Compare the verdicts of a stopped watcher with the code as it is now."""
    from watchtest.client.stopped_verdict import compared_status
    from watchtest.commands import load_project

    try:
        return compared_status(load_project(arguments))
    except WatchtestError as error:  # nothing is known of the code, so the document stays as it is: in doubt
        say(f"cannot tell whether the code has changed: {error}")
        return document


def _print(arguments: argparse.Namespace, document: Document, writer: WriterState) -> None:
    now = time.time()
    if arguments.json:
        print_json(document | {"alive": writer.is_alive})
    elif arguments.line:
        print_text(line(document, writer.trouble, now))
    else:
        has_colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print_text(block(document, writer.trouble, now, has_colour=has_colour), has_colour=has_colour)
