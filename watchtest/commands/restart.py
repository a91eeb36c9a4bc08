"""`watchtest restart`: `stop`, then `start` with the settings as they are now."""

from __future__ import annotations

import argparse

from watchtest.client.settings import engine_flag, trigger_flags
from watchtest.commands import start, stop


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("restart", help="stop the watcher, and start one in the background")
    start.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.client.settings import project_of

    # Settings that are wrong must not cost the user the watcher that there is.
    project_of(arguments, {**trigger_flags(arguments), **engine_flag(arguments)})
    stop.run(arguments)
    return start.run(arguments)
