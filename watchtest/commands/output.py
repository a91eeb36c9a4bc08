"""`watchtest output`: print the complete output of the last failures.

Print everything that the failed tests and the runner printed in the last run.

    watchtest output --match cart | less
"""

from __future__ import annotations

import argparse
import sys

from watchtest.client.watcher import Watcher
from watchtest.core.text import clean, encodable


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--match", default="", metavar="TEXT", help="only tests whose names contain all these words")


def run(arguments: argparse.Namespace) -> int:
    from urllib.parse import urlencode

    answer = Watcher(arguments).get(f"/output?{urlencode({'filter': arguments.match})}")
    print(encodable(clean(str(answer["text"])), sys.stdout.encoding), end="")
    return 0
