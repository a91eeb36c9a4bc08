"""`watchtest reset`: delete the boxes and create them again.

Delete the boxes of this workspace and create them again from their image and setup, or from your snapshot.

    watchtest reset --environment
"""

from __future__ import annotations

import argparse

from watchtest.commands import Subparsers, add_command, add_engine, load_project, say


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "reset", run, __doc__)
    text = "also delete the snapshot, saved environments and caches, so that setup runs again"
    parser.add_argument("--environment", action="store_true", help=text)
    add_engine(parser)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.client.box_access import is_watched, prepare_box, provider_in_use
    from watchtest.workspace import manual_changes

    project = load_project(arguments)
    provider = provider_in_use(project, say)
    try:
        gone = provider.reset(arguments.environment)
        manual_changes.take(project.workspace)
        print(f"deleted: {', '.join(gone)}", flush=True)
        if is_watched(project.workspace):
            print("the watcher creates its box again, at once or with the next save")
            return 0
        prepare_box(project, provider, say)
    finally:
        provider.close()
    print("created again")
    return 0
