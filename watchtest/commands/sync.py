"""`watchtest sync --accept`: the answer to "most of the box would be deleted"."""

from __future__ import annotations

import argparse
from pathlib import Path

from watchtest.errors import UsageError
from watchtest.workspace.folder import find_workspace


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("sync", help="accept that a source lost most of its files")
    parser.add_argument(
        "--accept", action="store_true", help="it is right so: let the next sync delete them in the box"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.workspace.shrink_consent import grant_consent

    if not arguments.accept:
        raise UsageError("sync: nothing to do", hint="syncing is done by itself; `watchtest sync --accept` answers it")
    grant_consent(find_workspace(arguments.workspace or Path.cwd()))
    print("accepted: the next sync may delete most of the box (for ten minutes)")
    return 0
