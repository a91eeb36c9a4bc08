"""`watchtest cancel`: end the run under way, or the one that is named, and say what became of it."""

from __future__ import annotations

import argparse
from urllib.parse import quote

from watchtest.client.watcher import Report, Watcher
from watchtest.control.client import Declined
from watchtest.core.run_queue import BEFORE_IT_BEGAN
from watchtest.errors import ControlError

LIMIT_S = 60.0
"""A run is asked, then told, then killed, with a grace between: that is over long before this."""
CALLED_OFF = ("cancelled", "killed")


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("cancel", help="end the run under way; its changes wait for the next save")
    parser.add_argument(
        "name", nargs="?", default="current", metavar="RUN", help="this run (default: the one under way)"
    )
    parser.add_argument("--kill", action="store_true", help="at once, without a chance to clean up")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    watcher = Watcher(arguments)
    try:
        report = watcher.post(f"/runs/{quote(arguments.name, safe='')}/{'kill' if arguments.kill else 'cancel'}")
    except Declined as error:
        if error.reason != "nothing_running":
            raise
        print(error.message)
        return 0
    name = report["id"]
    if report["ended"]:
        is_ours = report["reason"] == BEFORE_IT_BEGAN
        print(f"run {name} {BEFORE_IT_BEGAN}" if is_ours else f"run {name} had ended before: {_state(report)}")
        return 0
    try:
        end = watcher.end_of(name, LIMIT_S, lambda _report: None)
    except Declined as error:
        if error.reason != "no_such_run":
            raise
        print(f"run {name} had nothing to do, and has ended")
        return 0
    if end is None:
        raise ControlError(
            f"run {name} has not ended within {LIMIT_S:g} s", hint=f"`watchtest cancel --kill {name}` ends it at once"
        )
    if end["state"] in CALLED_OFF:
        print(f"run {name} {end['state']}")
    else:
        print(f"run {name} ended before it could be cancelled: {_state(end)}")
    return 0


def _state(report: Report) -> str:
    return str(report["state"]).replace("_", " ")
