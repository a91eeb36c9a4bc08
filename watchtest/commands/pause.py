"""`watchtest pause`: changes are noted, and nothing runs until `watchtest resume`."""

from __future__ import annotations

import argparse

from watchtest.client.watcher import Watcher, add_lane


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("pause", help="note changes, but run nothing until `resume`")
    add_lane(parser, "all")
    parser.set_defaults(run=lambda arguments: tell(arguments, "pause"))


def tell(arguments: argparse.Namespace, word: str) -> int:
    """Pass the word on, and print how each lane stands now."""
    answer = Watcher(arguments).post(f"/{word}", {"lane": arguments.lane} if arguments.lane else {})
    for lane, state in answer["lanes"].items():
        print(f"{lane}: {'paused' if state['paused'] else 'goes on'}")
    return 0
