"""`watchtest cancel`: end the current run.

End the current run, or the one named. Its changes are tested with the next save.

    watchtest cancel
    watchtest cancel --kill
"""

from __future__ import annotations

import argparse
from urllib.parse import quote

from watchtest.client.watcher import Document, RequestRefused, Watcher
from watchtest.core.run_queue import BEFORE_IT_BEGAN
from watchtest.errors import ControlError

LIMIT_S = 60.0
"""SIGINT, SIGTERM and SIGKILL, with the grace periods between them, take far less."""


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "id of the run (default: the current one)"
    parser.add_argument("name", nargs="?", default="current", metavar="RUN", help=text)
    parser.add_argument("--kill", action="store_true", help="kill it at once, without giving it time to clean up")


def run(arguments: argparse.Namespace) -> int:
    watcher = Watcher(arguments)
    try:
        report = watcher.post(f"/runs/{quote(arguments.name, safe='')}/{'kill' if arguments.kill else 'cancel'}")
    except RequestRefused as error:
        if error.reason != "nothing_running":
            raise
        print(error.message)
        return 0
    name = report["id"]
    if report["ended"]:
        is_ours = report["reason"] == BEFORE_IT_BEGAN
        print(f"run {name} {BEFORE_IT_BEGAN}" if is_ours else f"run {name} had already ended: {_state(report)}")
        return 0
    try:
        end = watcher.wait_for_end(name, LIMIT_S)
    except RequestRefused as error:
        if error.reason != "no_such_run":
            raise
        print(f"run {name} had nothing to do and has ended")
        return 0
    if end is None:
        hint = f"`watchtest cancel --kill {name}` ends it at once"
        raise ControlError(f"run {name} has not ended within {LIMIT_S:g} s", hint=hint)
    if end["state"] in ("cancelled", "killed"):
        print(f"run {name} {end['state']}")
    else:
        print(f"run {name} ended before it could be cancelled: {_state(end)}")
    return 0


def _state(report: Document) -> str:
    return str(report["state"]).replace("_", " ")
