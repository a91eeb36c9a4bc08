"""`watchtest restart`: stop the watcher and start one in the background.

Restart the watcher in the background with the current settings. If the settings are wrong, the running watcher is left
alone.

    watchtest restart --engine podman
"""

from __future__ import annotations

import argparse

from watchtest.commands import load_project, start, stop

add_options = start.add_options


def run(arguments: argparse.Namespace) -> int:
    from watchtest.wiring import check_consent

    # Wrong settings must fail before the running watcher is stopped.
    check_consent(load_project(arguments))
    stop.run(arguments)
    return start.run(arguments)
