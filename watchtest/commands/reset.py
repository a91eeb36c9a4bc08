"""`watchtest reset`: throw the boxes of this workspace away and make them anew."""

from __future__ import annotations

import argparse

from watchtest.client.settings import add_engine, engine_flag
from watchtest.commands.exec import say


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("reset", help="throw the box away and make it anew")
    parser.add_argument(
        "--environment",
        action="store_true",
        help="also what was kept: snapshot, environments, caches; setup runs again",
    )
    add_engine(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.client.box_visit import is_watched, ready, visited_provider
    from watchtest.client.settings import project_of
    from watchtest.workspace import manual_changes

    project = project_of(arguments, engine_flag(arguments))
    provider = visited_provider(project, say)
    try:
        gone = provider.reset(arguments.environment)
        manual_changes.take(project.workspace)
        print(f"thrown away: {', '.join(gone)}", flush=True)
        if is_watched(project.workspace):
            print("the watcher makes its box anew, at once or with the next save")
            return 0
        ready(project, provider, say)
    finally:
        provider.close()
    print("made anew")
    return 0
