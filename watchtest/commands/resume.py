"""`watchtest resume`: the end of a pause; what was noted meanwhile runs now."""

from __future__ import annotations

import argparse

from watchtest.client.watcher import add_lane
from watchtest.commands.pause import tell


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("resume", help="end a pause")
    add_lane(parser, "all")
    parser.set_defaults(run=lambda arguments: tell(arguments, "resume"))
