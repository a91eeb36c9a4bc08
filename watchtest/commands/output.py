"""`watchtest output`: all that the failures and the runner have said last; the key `o` of the dashboard."""

from __future__ import annotations

import argparse
import sys

from watchtest.client.watcher import Watcher
from watchtest.core.text import clean, encodable


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("output", help="everything that the last failures have said")
    parser.add_argument("--match", default="", metavar="TEXT", help="only of tests with these words in their names")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from urllib.parse import urlencode

    told = Watcher(arguments).get(f"/output?{urlencode({'filter': arguments.match})}")
    print(encodable(clean(str(told["text"])), sys.stdout.encoding), end="")
    return 0
