"""`watchtest reset`: delete the boxes and create them again.

Delete the boxes of this workspace and create them again from their image and setup, or from your snapshot.

    watchtest reset --environment
"""

from __future__ import annotations

import argparse
from contextlib import closing

from watchtest.commands import add_engine, load_project, say


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "also delete the snapshot, saved environments and caches, so that setup runs again"
    parser.add_argument("--environment", action="store_true", help=text)
    add_engine(parser)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.client.box_access import prepare_box, provider_in_use
    from watchtest.client.status_file import is_watched
    from watchtest.wiring import added_dependencies
    from watchtest.workspace import manual_changes

    project = load_project(arguments)
    with closing(provider_in_use(project, say)) as provider:
        gone = provider.reset(arguments.environment)
        manual_changes.take_changes(project.workspace)
        if arguments.environment:
            added_dependencies(project).forget()
        print(f"deleted: {', '.join(gone)}", flush=True)
        if is_watched(project.workspace):
            print("the watcher creates its box again, at once or with the next save")
            return 0
        prepare_box(project, provider, say)
    print("created again")
    return 0
