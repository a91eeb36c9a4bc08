"""`watchtest stop`: end the watcher of this workspace, wherever it runs. Returns when it is gone, and its lock free."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("stop", help="end the watcher, in the background or not")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.client.background import Workspace
    from watchtest.workspace.folder import find_workspace

    folder = find_workspace(arguments.workspace or Path.cwd())
    holder = Workspace(folder).stop(say)
    print(f"no watcher runs on {folder}" if holder is None else f"stopped the watcher of {folder}: {holder}")
    return 0


def say(text: str) -> None:
    print(f"watchtest: {text}", file=sys.stderr)
