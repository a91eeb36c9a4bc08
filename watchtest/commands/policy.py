"""`watchtest policy`: set how many tests a change runs.

Set how many tests a change runs, until the watcher stops or the policy is set again. `configured` goes back to what
[triggers] says.

    watchtest policy failed
    watchtest policy configured
"""

from __future__ import annotations

import argparse

from watchtest.client.watcher import Watcher
from watchtest.commands import Subparsers, add_command, add_lane

POLICIES = ("affected", "failed", "all", "configured")


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "policy", run, __doc__)
    parser.add_argument("policy", choices=POLICIES, help="what to run after a change")
    add_lane(parser)


def run(arguments: argparse.Namespace) -> int:
    body: dict[str, object] = {"policy": arguments.policy}
    if arguments.lane:
        body["lane"] = arguments.lane
    answer = Watcher(arguments).post("/policy", body)
    print(f"{answer['lane']} lane: a change now runs {answer['policy']}")
    return 0
