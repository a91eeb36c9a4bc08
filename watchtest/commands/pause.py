"""`watchtest pause`: hold back all runs until `resume`.

Start no more runs. Changes are still noted and are tested after `watchtest resume`.

    watchtest pause
    watchtest pause --lane commit
"""

from __future__ import annotations

import argparse

from watchtest.client.watcher import Watcher
from watchtest.commands import Subparsers, add_command, add_lane


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "pause", lambda arguments: set_paused(arguments, "pause"), __doc__)
    add_lane(parser, "all lanes")


def set_paused(arguments: argparse.Namespace, action: str) -> int:
    """Post `pause` or `resume` to the watcher, and print the state of each lane."""
    answer = Watcher(arguments).post(f"/{action}", {"lane": arguments.lane} if arguments.lane else {})
    for lane, state in answer["lanes"].items():
        print(f"{lane}: {'paused' if state['paused'] else 'not paused'}")
    return 0
