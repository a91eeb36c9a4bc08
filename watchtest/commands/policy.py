"""`watchtest policy`: set how many tests a change runs.

Set how many tests a change runs, until the watcher stops or the policy is set again. `configured` goes back to what
[triggers] says.

    watchtest policy failed
    watchtest policy configured
"""

from __future__ import annotations

import argparse

from watchtest.client.watcher import Watcher
from watchtest.commands import add_lane


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "policy", choices=("affected", "failed", "all", "configured"), help="what to run after a change"
    )
    add_lane(parser)


def run(arguments: argparse.Namespace) -> int:
    answer = Watcher(arguments).post("/policy", {"policy": arguments.policy, "lane": arguments.lane})
    print(f"{answer['lane']} lane: a change now runs {answer['policy']}")
    return 0
