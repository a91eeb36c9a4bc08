"""`watchtest sync`: confirm that most files are meant to be gone.

watchtest asks before it deletes more than half of the files in the box. This command confirms it, for one sync within
the next ten minutes.

    watchtest sync --accept
"""

from __future__ import annotations

import argparse

from watchtest.commands import check_own_folder
from watchtest.errors import UsageError
from watchtest.workspace.folder import find_workspace


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "allow the next sync to delete the files in the box"
    parser.add_argument("--accept", action="store_true", help=text)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.workspace.shrink_guard import grant_consent

    if not arguments.accept:
        raise UsageError("sync: nothing to do", hint="the watcher syncs by itself; --accept confirms a large deletion")
    workspace = find_workspace(arguments.workspace)
    check_own_folder(workspace)
    grant_consent(workspace)
    print("confirmed: within ten minutes, one sync may delete most of the files in the box")
    return 0
