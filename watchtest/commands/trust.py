"""`watchtest trust`: allow what the project's settings ask of this machine.

What stays inside a container needs no consent. Settings of the project that reach your machine or its secrets do: show
and allow them as they are now. If one of them changes, you are asked again. Your own settings need no consent.

    watchtest trust --show
    watchtest trust
    watchtest trust --revoke
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING

from watchtest.commands import add_engine, add_json, load_project, print_json
from watchtest.core.text import clean, count
from watchtest.errors import EngineError, WorkspaceError

if TYPE_CHECKING:
    from watchtest.config import Project
    from watchtest.workspace.consent import HostRequest

WAYS = {True: "allowed", False: "not allowed"}
YES = ("y", "yes")


def add_options(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="show the requests; allow nothing")
    what.add_argument("--revoke", action="store_true", help="take back everything that was allowed in this project")
    add_json(parser)
    add_engine(parser, opens_box=False)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.workspace.consent import ConsentFile
    from watchtest.workspace.folder import find_workspace
    from watchtest.workspace.user_dirs import state_dir

    file = ConsentFile(state_dir(), find_workspace(arguments.workspace))
    if arguments.revoke:  # even if the settings are wrong
        revoked = file.revoke()
        if arguments.json:
            print_json({"workspace": str(file.workspace), "revoked": revoked})
        else:
            print(f"{count(revoked, 'consent')} taken back; a running watcher goes on until you stop it")
        return 0
    requests = requests_of(load_project(arguments))
    if requests and not arguments.show:
        file.grant(requests, time.time())
    granted = file.granted()
    if arguments.json:
        rows = [
            {"key": one.key, "value": one.value, "from": one.origin, "why": one.why, "allowed": one.digest in granted}
            for one in requests
        ]
        print_json({"workspace": str(file.workspace), "requests": rows})
        return 0
    for one in requests:
        print(f"{WAYS[one.digest in granted]}: {clean(str(one))}")
    if not requests:
        print("this project asks for nothing beyond its container")
    return 0


def requests_of(project: Project) -> tuple[HostRequest, ...]:
    """Return what the project asks of this machine, for the box that it would get now."""
    from watchtest.wiring import ChosenEngine, choose_engine, host_requests

    try:
        engine = choose_engine(project, lambda text: None)
    except EngineError:  # the engine that the user named does not answer, but no other one may run the tests
        engine = ChosenEngine("docker", None)
    return host_requests(project, engine)


def is_granted_now(error: WorkspaceError) -> bool:
    """Show the requests, and store the consent if the answer is yes. Without a terminal there is none."""
    from watchtest.workspace.consent import NeedsConsent

    assert isinstance(error, NeedsConsent)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    question = f"{clean(error.message)}\n\nAllow this in {clean(str(error.file.workspace))}? [y/N] "
    if not _fits(question, shutil.get_terminal_size()):
        return False  # a part that has scrolled away would be allowed unseen
    sys.stderr.write(question)
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in YES:
        raise WorkspaceError("not allowed, so nothing was run", hint=error.hint)
    error.file.grant(error.requests, time.time())
    return True


def _fits(text: str, screen: os.terminal_size) -> bool:
    """Return whether all of the text is visible at once; a character may take two columns."""
    rows = sum(1 + 2 * len(line) // max(screen.columns, 1) for line in text.splitlines())
    return rows <= screen.lines
