"""What all `watchtest history` commands share: access to the history file, and errors for unknown names.

Before a query, runs that dead watchers left unfinished are ended. A live watcher holds a lock.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Concatenate, TypeVar

from watchtest.client.history_options import chosen_runs
from watchtest.client.status_file import is_locked
from watchtest.core.text import one_line
from watchtest.errors import UsageError, WatchtestError, WorkspaceError
from watchtest.history.queries import run_queries
from watchtest.history.queries.json_answers import to_json
from watchtest.history.queries.test_names import PastTest, find_tests
from watchtest.history.store.database import Connection
from watchtest.history.store.database_file import history_exists, history_path, open_for_reading
from watchtest.history.store.store import Store
from watchtest.workspace.folder import FOLDER, find_workspace, replace_file
from watchtest.workspace.lock import FolderLock
from watchtest.workspace.user_dirs import state_dir

Answer = TypeVar("Answer")
Default = TypeVar("Default")
REPORT_FORMATS = ("junit", "ctrf")
LOCKS = {False: "lock", True: "gate.lock"}
"""The lock that a live process holds, by whether it is a gate or a probe instead of the watcher."""


# -- queries ---------------------------------------------------------------------------------------


def history_file(arguments: argparse.Namespace) -> Path:
    return history_path(state_dir(), find_workspace(arguments.workspace))


def query_history(
    arguments: argparse.Namespace, query: Callable[[Connection], Answer], default: Default
) -> Answer | Default:
    """Return the answer of a query on one consistent view of the history, or the default if there is no history yet."""
    path = history_file(arguments)
    if not history_exists(path):
        return default
    end_dead_runs(path)
    with open_for_reading(path) as connection:
        return query(connection)


def query_runs(
    arguments: argparse.Namespace, query: Callable[Concatenate[Connection, ...], Answer], *names: str
) -> Answer:
    """Return the answer of a query about the runs with these ids or names. Raises UsageError for an unknown run."""
    workspace = chosen_runs(arguments).workspace

    def query_found(connection: Connection) -> tuple[Answer]:
        runs: list[run_queries.PastRun] = []
        for name in names:
            run = run_queries.find_run(connection, name, workspace)
            if run is None:
                known = run_queries.recent_runs(connection, limit=200)
                raise _unknown_run(arguments, name, [each.id for each in known])
            runs.append(run)
        return (query(connection, *runs),)

    found = query_history(arguments, query_found, None)
    if found is None:
        raise _unknown_run(arguments, names[0], [])
    return found[0]


def _unknown_run(arguments: argparse.Namespace, name: str, known: Sequence[str]) -> UsageError:
    command = f"history {arguments.history_action} {one_line(name)}"
    if not known:
        return UsageError(f"{command}: there are no runs yet", hint="start one: watchtest watch")
    if name in run_queries.NAMED_RUNS:
        return UsageError(f"{command}: this workspace has no such run", hint="see: watchtest history list")
    close = get_close_matches(name, [*run_queries.NAMED_RUNS, *known], n=1)
    hint = f"did you mean {close[0]}?" if close else "see: watchtest history list"
    return UsageError(f"{command}: no such run", hint=hint)


def require_test(connection: Connection, name: str, verb: str) -> PastTest:
    """Return the only test that matches the name. Raises UsageError with the candidates."""
    found = find_tests(connection, name)
    if len(found) == 1:
        return found[0]
    command = f"history {verb} {one_line(name)}"
    if not found:
        raise UsageError(f"{command}: no such test in the history", hint="see: watchtest history show --tests")
    some = "".join(f"\n  {one_line(each.identity)}" for each in found[:10])
    more = f"\n  … and {len(found) - 10} more" if len(found) > 10 else ""
    raise UsageError(f"{command}: several tests match:{some}{more}", hint="name one of them")


# -- output ----------------------------------------------------------------------------------------


def print_answer(arguments: argparse.Namespace, document: object, print_text: Callable[[], None]) -> int:
    """Print an answer as JSON or as text, and return the exit code."""
    if arguments.json:
        print(json.dumps(to_json(document), indent=2))
    else:
        print_text()
    return 0


def write_report(path: Path, text: str) -> None:
    """Write the file completely, or leave it as it was."""
    try:
        replace_file(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        text = f"cannot write {path}: {error.strerror or error}"
        raise WorkspaceError(text, hint="name another file with -o") from error


# -- runs of dead processes ------------------------------------------------------------------------


def end_dead_runs(path: Path) -> None:
    """End the unfinished runs of dead processes in every workspace of the history, if we may write to it."""
    with open_for_reading(path) as connection:
        found = run_queries.workspaces_with_open_runs(connection)
    dead = [(folder, is_gate) for folder, is_gate in found if not is_locked(Path(folder, FOLDER, LOCKS[is_gate]))]
    if not dead:
        return
    try:
        # Open the store before taking a lock, so that a watcher that starts now waits for the lock only briefly.
        with Store(path) as store:
            for workspace, is_gate in dead:
                if Path(workspace, FOLDER).is_dir():
                    lock = FolderLock(Path(workspace, FOLDER), LOCKS[is_gate], 0.0)
                    with suppress(TimeoutError, WorkspaceError), lock:
                        store.end_dead_runs(workspace, time.time(), is_gate=is_gate)
                elif not Path(workspace).exists():
                    # Nothing can start again in a removed worktree. If only our folder is gone, a watcher may run.
                    store.end_dead_runs(workspace, time.time(), is_gate=is_gate)
    except WatchtestError:
        return
