"""`watchtest history html`: write a report as one HTML page.

Write one self-contained page with runs, tests and trends.

    watchtest history html -o report.html --open
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from watchtest.client.history_access import (
    chosen_workspace,
    parse_age,
    parse_limit,
    query_history,
    since_time,
    write_report,
)
from watchtest.commands import Subparsers, add_command
from watchtest.errors import UsageError
from watchtest.workspace.folder import find_workspace


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "html", run, __doc__)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="file to write (default: watchtest-history.html)"
    )
    parser.add_argument("--open", action="store_true", help="open it in a browser")
    parser.add_argument(
        "--runs", type=parse_limit, default=300, metavar="N", help="include the latest N runs (default: 300)"
    )
    parser.add_argument(
        "--since", type=parse_age, default=None, metavar="AGE", help="only the last AGE: 90m, 12h, 7d, 4w, or all"
    )
    parser.add_argument("--all-worktrees", action="store_true", help="include all worktrees of the repository")


def run(arguments: argparse.Namespace) -> int:
    from watchtest.history.reports.html_page import PageOptions, page, page_data

    options = PageOptions(
        name=find_workspace(arguments.workspace).name,
        workspace=chosen_workspace(arguments),
        now=time.time(),
        since=since_time(arguments),
        runs=arguments.runs,
    )
    data = query_history(arguments, lambda connection: page_data(connection, options), None)
    if data is None:
        raise UsageError("history html: there are no runs yet", hint="start one: watchtest watch")
    # A page that is only to be looked at does not belong into the project.
    is_temporary = arguments.open and arguments.output is None
    folder = Path(tempfile.mkdtemp(prefix="watchtest-")) if is_temporary else Path()
    path = arguments.output or folder / "watchtest-history.html"
    write_report(path, page(data))
    print(path)
    if arguments.open:
        _open(path)
    return 0


def _open(path: Path) -> None:
    import webbrowser

    if not webbrowser.open(path.absolute().as_uri()):
        raise UsageError(f"history html --open: no browser found; the page is {path}")
