"""`watchtest attach`: show the dashboard of the background watcher.

Show the dashboard of a watcher that runs elsewhere. Leaving it (q) does not stop the watcher.

    watchtest attach
"""

from __future__ import annotations

import argparse
import os

from watchtest.client.watcher import Watcher
from watchtest.errors import UsageError


def run(arguments: argparse.Namespace) -> int:
    watcher = Watcher(arguments)
    watcher.get("/health")  # without a watcher, fail like every other command
    import asyncio

    from watchtest.client.attached_dashboard import run_attached_dashboard
    from watchtest.views.dashboard.dashboard import has_screen

    if not has_screen(os.environ):
        raise UsageError("attach needs a terminal that can show a dashboard", hint="use `watchtest status --wait`")

    return asyncio.run(run_attached_dashboard(watcher, dict(os.environ)))
