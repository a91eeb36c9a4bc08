"""`watchtest edit`: the user's editor at a failure, by the status file alone; the key `e` of the dashboard."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from pathlib import Path

from watchtest.client.status_file import load
from watchtest.errors import UsageError
from watchtest.views.dashboard.dashboard import editor
from watchtest.workspace.folder import FOLDER, find_workspace


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("edit", help="open $EDITOR at a failure")
    parser.add_argument("number", nargs="?", type=int, default=1, help="which of the failures (default: the first)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    folder = find_workspace(arguments.workspace or Path())
    failures = [each for each in load(folder / FOLDER / "status.json")["failures"] if each["file"]]
    if not failures:
        raise UsageError("no failure names a line", hint="`watchtest status` tells what is known")
    if not 1 <= arguments.number <= len(failures):
        raise UsageError(f"no failure {arguments.number}", hint=f"there are {len(failures)}")
    failure = failures[arguments.number - 1]
    words = editor(os.environ, shutil.which, str(folder / failure["file"]), int(failure["line"] or 1))
    if not words:
        raise UsageError("there is no editor", hint="set $EDITOR")
    try:
        return subprocess.run(words, cwd=folder, check=False).returncode
    except OSError as error:
        raise UsageError(f"{words[0]}: {error.strerror}", hint="set $EDITOR to a program that is there") from error
