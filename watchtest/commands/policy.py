"""`watchtest policy`: how much a change runs from now on; the key `f` of the dashboard is `policy failed`."""

from __future__ import annotations

import argparse

from watchtest.client.watcher import Watcher, add_lane

POLICIES = ("affected", "failed", "all", "configured")


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "policy",
        help="how much a change runs, until told otherwise",
        description="Until the watcher ends or is told otherwise. `configured` goes back to what [triggers] says.",
    )
    parser.add_argument("policy", choices=POLICIES)
    add_lane(parser, "the highest that is on")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    body: dict[str, object] = {"policy": arguments.policy}
    if arguments.lane:
        body["lane"] = arguments.lane
    told = Watcher(arguments).post("/policy", body)
    print(f"a change of the {told['lane']} lane runs: {told['policy']}")
    return 0
