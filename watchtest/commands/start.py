"""`watchtest start`: the watcher in the background. Returns when it really watches, or says why it does not."""

from __future__ import annotations

import argparse

from watchtest.client.settings import add_engine, add_trigger, engine_flag, trigger_flags

TRIES = 3
"""Another watcher may have been quicker, and have ended before it could be told."""


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("start", help="the watcher in the background")
    add_options(parser)
    parser.set_defaults(run=run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of `watch` that are settings."""
    add_engine(parser)
    add_trigger(parser)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.client.background import Workspace
    from watchtest.client.settings import project_of
    from watchtest.errors import ControlError

    # What is wrong with the settings is said here and now, in the words of the foreground.
    project = project_of(arguments, {**trigger_flags(arguments), **engine_flag(arguments)})
    workspace = Workspace(project.workspace)
    for _ in range(TRIES):
        if not workspace.is_watched():
            begun = workspace.start(options(arguments, str(project.workspace)))
            if begun is not None:
                print(f"watching {workspace.folder} in the background: process {begun.pid}")
                return 0
        if (holder := workspace.known_holder()) is not None:
            print(f"{workspace.folder} is watched already: {holder}")
            return 0
    raise ControlError(
        f"watchers of {workspace.folder} come and go", hint="see who starts and stops them, then try again"
    )


def options(arguments: argparse.Namespace, workspace: str) -> list[str]:
    """The command line of a background watcher that obeys the same flags."""
    config = ["--config", str(arguments.config.absolute())] if arguments.config is not None else []
    engine = ["--engine", arguments.engine] if arguments.engine else []
    triggers = [word for wish in arguments.trigger for word in ("--trigger", wish)]
    return ["-C", workspace, *config, "watch", "--silent", *engine, *triggers]
