"""`watchtest start`: start the watcher in the background.

Start a watcher in the background. Returns when it is watching, or reports why it cannot.

    watchtest start --trigger commit=all
"""

from __future__ import annotations

import argparse

from watchtest.commands import add_engine, add_trigger, load_project
from watchtest.errors import ControlError

TRIES = 3
"""Another watcher may start first, and end before it can be reported."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `watch` that are settings."""
    add_engine(parser)
    add_trigger(parser)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.client.background import BackgroundWatcher
    from watchtest.wiring import check_consent
    from watchtest.workspace.lock import TAKEN

    # Report wrong settings here, with the messages of the foreground.
    project = load_project(arguments)
    watcher = BackgroundWatcher(project.workspace)
    for _ in range(TRIES):
        if not watcher.is_watched():
            check_consent(project)
            started = watcher.start(options(arguments, str(project.workspace)))
            if started is not None:
                print(f"watching {watcher.folder} in the background: process {started.pid}")
                return 0
        if (process := watcher.wait_for_process()) is not None:
            print(f"{watcher.folder} {TAKEN}: {process}")
            return 0
    text = f"watchers of {watcher.folder} keep starting and ending"
    raise ControlError(text, hint="find out what starts them, then try again")


def options(arguments: argparse.Namespace, workspace: str) -> list[str]:
    """Return the command line of a background watcher with the same flags."""
    config = ["--config", str(arguments.config.absolute())] if arguments.config is not None else []
    engine = ["--engine", arguments.engine] if arguments.engine else []
    trust = ["--trust"] if arguments.trust else []
    triggers = [word for trigger in arguments.trigger for word in ("--trigger", trigger)]
    return ["-C", workspace, *config, "watch", "--silent", *engine, *trust, *triggers]
