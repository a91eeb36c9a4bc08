"""What all `watchtest history` commands share: filters, access to the history file, and errors for unknown names.

Before a query, runs that dead watchers left unfinished are ended. A live watcher holds a lock.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from watchtest.core.model import Lane
from watchtest.errors import UsageError, WatchtestError, WorkspaceError
from watchtest.workspace.folder import FOLDER, find_workspace

if TYPE_CHECKING:
    from watchtest.history.queries.run_queries import PastRun
    from watchtest.history.queries.test_names import PastTest
    from watchtest.history.store.database import Connection

Answer = TypeVar("Answer")
Default = TypeVar("Default")
LONGEST_LIST = 10_000
AGES = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
RUN_NAMES = "a run id, or last (default), last-failed, last-green"
REPORT_FORMATS = ("junit", "ctrf")


def add_filters(parser: argparse.ArgumentParser, *, lane: bool = True, since: str | None = None) -> None:
    """Add the common options. `since` is the default of `--since`; without it there is no such option."""
    parser.add_argument("--all-worktrees", action="store_true", help="include all worktrees of the repository")
    parser.add_argument("--json", action="store_true", help="print JSON")
    if lane:
        parser.add_argument("--lane", choices=[lane.value for lane in Lane], help="only runs of this lane")
    if since is not None:
        text = f"only the last AGE: 90m, 12h, 7d, 4w, or all (default: {since})"
        parser.add_argument("--since", type=parse_age, default=parse_age(since), metavar="AGE", help=text)


def chosen_workspace(arguments: argparse.Namespace) -> str | None:
    """Return the workspace to query, or None for all worktrees of the repository."""
    return None if arguments.all_worktrees else str(find_workspace(arguments.workspace))


def chosen_lane(arguments: argparse.Namespace) -> Lane | None:
    return Lane(arguments.lane) if arguments.lane else None


def since_time(arguments: argparse.Namespace) -> float | None:
    return None if arguments.since is None else time.time() - float(arguments.since)


def history_file(arguments: argparse.Namespace) -> Path:
    from watchtest.history.store.database_file import history_path
    from watchtest.workspace.user_dirs import state_dir

    return history_path(state_dir(), find_workspace(arguments.workspace))


def query_history(
    arguments: argparse.Namespace, query: Callable[[Connection], Answer], default: Default
) -> Answer | Default:
    """Return the answer of a query on one consistent view of the history, or the default if there is no history yet."""
    from watchtest.history.store.database_file import history_exists, open_for_reading

    path = history_file(arguments)
    if not history_exists(path):
        return default
    end_dead_runs(path)
    with open_for_reading(path) as connection:
        return query(connection)


def query_run(
    arguments: argparse.Namespace, verb: str, query: Callable[[Connection, PastRun], Answer]
) -> tuple[PastRun, Answer]:
    """Return the run that the user named, and the answer of a query about it. Raises UsageError for an unknown run."""

    def query_found(connection: Connection) -> tuple[PastRun, Answer]:
        run = require_run(connection, arguments.name, chosen_workspace(arguments), verb)
        return run, query(connection, run)

    found = query_history(arguments, query_found, None)
    if found is None:
        raise unknown_run_error(verb, arguments.name, [])
    return found


def write_report(path: Path, text: str) -> None:
    """Write the file completely, or leave it as it was."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise WorkspaceError(
            f"cannot write {path}: {error.strerror or error}", hint="name another file with -o"
        ) from error


def print_json(shape: object) -> None:
    print(json.dumps(shape, indent=2))


def require_run(connection: Connection, name: str, workspace: str | None, verb: str) -> PastRun:
    """Return the run with this id or name. Raises UsageError with a suggestion."""
    from watchtest.history.queries.run_queries import find_run, recent_runs

    found = find_run(connection, name, workspace)
    if found is None:
        raise unknown_run_error(verb, name, [run.id for run in recent_runs(connection, limit=200)])
    return found


def unknown_run_error(verb: str, name: str, known: list[str]) -> UsageError:
    from difflib import get_close_matches

    from watchtest.core.text import one_line
    from watchtest.history.queries.run_queries import NAMED_RUNS

    command = f"history {verb} {one_line(name)}"
    if not known:
        return UsageError(f"{command}: there are no runs yet", hint="start one: watchtest watch")
    if name in NAMED_RUNS:
        return UsageError(f"{command}: this workspace has no such run", hint="see: watchtest history list")
    close = get_close_matches(name, [*NAMED_RUNS, *known], n=1)
    hint = f"did you mean {close[0]}?" if close else "see: watchtest history list"
    return UsageError(f"{command}: no such run", hint=hint)


def require_test(connection: Connection, name: str, verb: str) -> PastTest:
    """Return the only test that matches the name. Raises UsageError with the candidates."""
    from watchtest.core.text import one_line
    from watchtest.history.queries.test_names import find_tests

    found = find_tests(connection, name)
    if len(found) == 1:
        return found[0]
    command = f"history {verb} {one_line(name)}"
    if not found:
        raise UsageError(f"{command}: no such test in the history", hint="see: watchtest history show --tests")
    some = "".join(f"\n  {one_line(each.identity)}" for each in found[:10])
    more = f"\n  … and {len(found) - 10} more" if len(found) > 10 else ""
    raise UsageError(f"{command}: several tests match:{some}{more}", hint="name one of them")


def parse_age(text: str) -> float | None:
    """Return an age such as `7d` in seconds, or None for `all`."""
    if text == "all":
        return None
    found = re.fullmatch(r"([0-9]{1,6})([mhdw])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age: write 90m, 12h, 7d, 4w or all")
    return int(found[1]) * AGES[found[2]]


def parse_limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= LONGEST_LIST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {LONGEST_LIST}")
    return int(text)


LOCKS = {False: "lock", True: "gate.lock"}
"""The lock that a live process holds, by whether it is a gate or a probe instead of the watcher."""


def end_dead_runs(path: Path) -> None:
    """End the unfinished runs of dead processes in every workspace of the history, if we may write to it."""
    from watchtest.client.status_file import is_locked
    from watchtest.history.queries.run_queries import workspaces_with_open_runs
    from watchtest.history.store.database_file import open_for_reading
    from watchtest.history.store.store import Store

    with open_for_reading(path) as connection:
        found = workspaces_with_open_runs(connection)
    dead = [(folder, is_gate) for folder, is_gate in found if not is_locked(Path(folder, FOLDER, LOCKS[is_gate]))]
    if not dead:
        return
    try:
        # Open the store before taking a lock, so that a watcher that starts now waits for the lock only briefly.
        with Store(path) as store:
            for workspace, is_gate in dead:
                with _exclusive_access(Path(workspace), LOCKS[is_gate]) as is_granted:
                    if is_granted:
                        store.end_dead_runs(workspace, time.time(), is_gate=is_gate)
    except WatchtestError:
        return


@contextmanager
def _exclusive_access(workspace: Path, name: str) -> Iterator[bool]:
    """Take the lock if no live process holds it, and yield whether that worked."""
    from filelock import FileLock, Timeout

    folder = workspace / FOLDER
    if not folder.is_dir():
        # In a removed worktree nothing can start again. If only our own folder is gone, something may be running.
        yield not workspace.exists()
        return
    lock = FileLock(folder / name)
    try:
        lock.acquire(timeout=0)
    except (Timeout, OSError):
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
