"""`watchtest status`: what the status file says, and whether its writer still lives. Reads files alone.

Only `--wait` asks the watcher itself: to look at its source now, and to answer for what is there now.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from watchtest.client.status_file import LANES, Life, exit_code, glance, of_lane, read, say
from watchtest.views.status.status_words import block, line
from watchtest.workspace.folder import FOLDER, find_workspace

TYPE_CHECKING = False  # as in `reading`
if TYPE_CHECKING:
    from watchtest.client.status_file import Document

TIMED_OUT = 124


# The type of add_subparsers' answer is private to argparse
def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "status",
        help="tell the last verdict; needs no engine",
        description="Tell what the status file says. Exit code: 0 green and up to date, 1 red or not known, "
        "2 no status file, 4 watcher dead or degraded, 5 no tests, 124 not within --timeout.",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the whole document, with `alive` added")
    form.add_argument("--line", action="store_true", help="one line, for a prompt or a status bar")
    form.add_argument("--schema", action="store_true", help="the JSON Schema of the status file")
    parser.add_argument("--lane", choices=LANES, help="of this lane (default: the highest that is on)")
    parser.add_argument("--wait", action="store_true", help="until there is a verdict on the code as it is now")
    parser.add_argument(
        "--timeout", type=float, metavar="S", help=f"with --wait: not longer than this (exit code {TIMED_OUT})"
    )
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.timeout is not None and not arguments.wait:
        arguments.parser.error("argument --timeout: needs --wait")
    if arguments.schema:
        from watchtest.views.status.status_schema import status_schema  # heavy, and rarely asked for

        print(json.dumps(status_schema(), indent=2))
        return 0
    if arguments.wait:
        from watchtest.client.watcher import settled  # speaks with the watcher

        document, is_in_time = settled(arguments)
        _tell(arguments, of_lane(document, arguments.lane), Life(True, ""))
        if not is_in_time:
            print(f"watchtest: no verdict on the code as it is now within {arguments.timeout:g} s", file=sys.stderr)
            return TIMED_OUT
        return exit_code(of_lane(document, arguments.lane), Life(True, ""))
    start = arguments.workspace or Path()
    if arguments.line:
        return glance(str(start), arguments.lane)
    document, life = read(find_workspace(start) / FOLDER, time.time())
    document = of_lane(document, arguments.lane)
    _tell(arguments, document, life)
    return exit_code(document, life)


def _tell(arguments: argparse.Namespace, document: Document, life: Life) -> None:
    now = time.time()
    if arguments.json:
        say(json.dumps(document | {"alive": life.is_alive}, indent=2))
    elif arguments.line:
        say(line(document, life.trouble, now))
    else:
        say(block(document, life.trouble, now, has_colour=_has_colour()))


def _has_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
