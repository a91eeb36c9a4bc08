"""`watchtest edit`: open your editor at a failure.

Open $EDITOR at the line of a failure. Uses the status file, so it works without a watcher.

    watchtest edit 2
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess

from watchtest.client.status_file import load_status
from watchtest.core.text import count
from watchtest.errors import UsageError
from watchtest.views.editor_and_pager import editor
from watchtest.workspace.folder import FOLDER, find_workspace


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "which failure, counted from 1 (default: the first)"
    parser.add_argument("number", nargs="?", type=int, default=1, metavar="N", help=text)


def run(arguments: argparse.Namespace) -> int:
    folder = find_workspace(arguments.workspace)
    failures = [each for each in load_status(folder / FOLDER / "status.json")["failures"] if each["file"]]
    if not failures:
        raise UsageError("no failure has a file and a line", hint="`watchtest status` shows what is known")
    if not 1 <= arguments.number <= len(failures):
        openable = count(len(failures), "failure")
        raise UsageError(f"no failure {arguments.number}", hint=f"{openable} can be opened")
    failure = failures[arguments.number - 1]
    words = editor(os.environ, shutil.which, str(folder / failure["file"]), int(failure["line"] or 1))
    if not words:
        raise UsageError("no editor was found", hint="set $EDITOR")
    try:
        return subprocess.run(words, cwd=folder, check=False).returncode
    except OSError as error:
        raise UsageError(f"{words[0]}: {error.strerror}", hint="set $EDITOR to a program that exists") from error
