"""`watchtest pause`: hold back all runs until `resume`.

Start no more runs. Changes are still noted and are tested after `watchtest resume`.

    watchtest pause
    watchtest pause --lane commit
"""

from __future__ import annotations

import argparse

from watchtest.client.watcher import Watcher
from watchtest.commands import add_lane


def add_options(parser: argparse.ArgumentParser) -> None:
    add_lane(parser, "all lanes")


def run(arguments: argparse.Namespace, action: str = "pause") -> int:
    answer = Watcher(arguments).post(f"/{action}", {"lane": arguments.lane})
    for lane, state in answer["lanes"].items():
        print(f"{lane}: {'paused' if state['paused'] else 'not paused'}")
    return 0
