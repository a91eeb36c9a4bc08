"""`watchtest attach`: the dashboard of a watcher that runs elsewhere. Leaving it leaves the watcher alone."""

from __future__ import annotations

import argparse
import os

from watchtest.client.watcher import Watcher
from watchtest.errors import UsageError


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("attach", help="the dashboard of the watcher that runs in the background")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    watcher = Watcher(arguments)
    watcher.get("/health")  # nobody there: said as for every other command
    import asyncio

    from watchtest.client.attached_dashboard import look_on
    from watchtest.views.dashboard.dashboard import has_screen

    if not has_screen(os.environ):
        raise UsageError(
            "attach needs a terminal that can be drawn on", hint="`watchtest status --wait` waits without one"
        )

    return asyncio.run(look_on(watcher, dict(os.environ)))
