"""What all questions share: whose history, the filters, and what to say where there is none.

Ends the runs of watchers that died, before anybody is told that they run. Living ones hold a lock.
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

if TYPE_CHECKING:
    from watchtest.history.queries.run_queries import PastRun
    from watchtest.history.queries.test_names import PastTest
    from watchtest.history.store.database import Connection

Answer = TypeVar("Answer")
LONGEST_LIST = 10_000
AGES = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
RUN_NAMES = "a run id, or last (default), last-failed, last-green"
REPORT_FORMATS = ("junit", "ctrf")


def add_filters(parser: argparse.ArgumentParser, *, lane: bool = True, since: str | None = None) -> None:
    """`since`: its default; None: there is no such filter."""
    parser.add_argument("--all-worktrees", action="store_true", help="include all worktrees of the repository")
    parser.add_argument("--json", action="store_true", help="print JSON")
    if lane:
        parser.add_argument("--lane", choices=[lane.value for lane in Lane], help="only runs of this lane")
    if since is not None:
        text = f"only the last AGE: 90m, 12h, 7d, 4w, or all (default: {since})"
        parser.add_argument("--since", type=parse_age, default=parse_age(since), metavar="AGE", help=text)


def workspace_of(arguments: argparse.Namespace) -> Path:
    from watchtest.workspace.folder import find_workspace

    try:
        return find_workspace(arguments.workspace or Path.cwd())
    except FileNotFoundError as error:
        raise WorkspaceError(
            "the current folder no longer exists", hint="change to another, or name one with -C"
        ) from error


def chosen_workspace(arguments: argparse.Namespace) -> str | None:
    """The workspace a question is about; None: any of the repository."""
    return None if arguments.all_worktrees else str(workspace_of(arguments))


def chosen_lane(arguments: argparse.Namespace) -> Lane | None:
    return Lane(arguments.lane) if arguments.lane else None


def since_time(arguments: argparse.Namespace) -> float | None:
    return None if arguments.since is None else time.time() - float(arguments.since)


def history_file(arguments: argparse.Namespace) -> Path:
    from watchtest.history.store.database_file import history_path
    from watchtest.workspace.user_dirs import state_dir

    return history_path(state_dir(), workspace_of(arguments))


def query_history(arguments: argparse.Namespace, question: Callable[[Connection], Answer]) -> Answer | None:
    """Of one consistent view of the history; None: there is none yet."""
    from watchtest.history.store.database_file import history_exists, open_for_reading

    path = history_file(arguments)
    if not history_exists(path):
        return None
    end_dead_runs(path)
    with open_for_reading(path) as connection:
        return question(connection)


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


def require_run(connection: Connection, name: str, workspace: str | None, action: str) -> PastRun:
    """The run of that name. Raises UsageError, with what may have been meant."""
    from watchtest.history.queries.run_queries import find_run, recent_runs

    found = find_run(connection, name, workspace)
    if found is None:
        raise unknown_run_error(action, name, [run.id for run in recent_runs(connection, limit=200)])
    return found


def unknown_run_error(action: str, name: str, known: list[str]) -> UsageError:
    from difflib import get_close_matches

    from watchtest.core.text import one_line
    from watchtest.history.queries.run_queries import NAMED_RUNS

    asked = f"history {action} {one_line(name)}"
    if not known:
        return UsageError(f"{asked}: there are no runs yet", hint="start one: watchtest watch")
    if name in NAMED_RUNS:
        return UsageError(f"{asked}: no run of this workspace is that", hint="see: watchtest history list")
    close = get_close_matches(name, [*NAMED_RUNS, *known], n=1)
    hint = f"did you mean {close[0]}?" if close else "see: watchtest history list"
    return UsageError(f"{asked}: no such run", hint=hint)


def require_test(connection: Connection, name: str, action: str) -> PastTest:
    """The one test that is meant. Raises UsageError, with those that could be."""
    from watchtest.core.text import one_line
    from watchtest.history.queries.test_names import find_tests

    found = find_tests(connection, name)
    if len(found) == 1:
        return found[0]
    asked = f"history {action} {one_line(name)}"
    if not found:
        raise UsageError(f"{asked}: no such test was ever seen", hint="see: watchtest history show --tests")
    some = "".join(f"\n  {one_line(each.identity)}" for each in found[:10])
    more = f"\n  … and {len(found) - 10} more" if len(found) > 10 else ""
    raise UsageError(f"{asked}: that could be any of{some}{more}", hint="name one of them")


def parse_age(text: str) -> float | None:
    """`7d` in seconds; `all`: None."""
    if text == "all":
        return None
    found = re.fullmatch(r"([0-9]{1,6})([mhdw])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no age: write 90m, 12h, 7d, 4w or all")
    return int(found[1]) * AGES[found[2]]


def parse_limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= LONGEST_LIST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {LONGEST_LIST}")
    return int(text)


LOCKS = {False: "lock", True: "gate.lock"}
"""Who is at work holds the watcher's lock; or, beside it, that of gates and probes."""


def end_dead_runs(path: Path) -> None:
    """In every workspace of the history. Whoever may not write there is told what it says."""
    from watchtest.client.status_file import is_locked
    from watchtest.history.queries.run_queries import workspaces_with_open_runs
    from watchtest.history.store.database_file import open_for_reading
    from watchtest.history.store.store import Store
    from watchtest.workspace.folder import FOLDER

    with open_for_reading(path) as connection:
        found = workspaces_with_open_runs(connection)
    dead = [each for each in found if not is_locked(Path(each[0], FOLDER, LOCKS[each[1]]))]
    if not dead:
        return
    try:
        # Opened before a lock is taken: a watcher that starts meanwhile waits for that lock, and not for long.
        with Store(path) as store:
            for workspace, is_gate in dead:
                with _nobody_at_work(Path(workspace), LOCKS[is_gate]) as is_so:
                    if is_so:
                        store.end_dead_runs(workspace, time.time(), is_gate=is_gate)
    except WatchtestError:
        return


@contextmanager
def _nobody_at_work(workspace: Path, name: str) -> Iterator[bool]:
    """Whether that is so; nobody can begin meanwhile."""
    from filelock import FileLock, Timeout

    from watchtest.workspace.folder import FOLDER

    folder = workspace / FOLDER
    if not folder.is_dir():
        # A worktree that was removed: nobody will ever start there again. Where only our folder was, that is not known.
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
