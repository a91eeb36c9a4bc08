"""`watchtest restart`: stop the watcher and start one in the background.

Restart the watcher in the background with the current settings. If the settings are wrong, the running watcher is left
alone.

    watchtest restart --engine podman
"""

from __future__ import annotations

import argparse

from watchtest.client.settings import engine_flag, trigger_flags
from watchtest.commands import Subparsers, add_command, start, stop


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "restart", run, __doc__)
    start.add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.client.settings import project_of

    # Wrong settings must fail before the running watcher is stopped.
    project_of(arguments, {**trigger_flags(arguments), **engine_flag(arguments)})
    stop.run(arguments)
    return start.run(arguments)
