"""`watchtest history html`: write a report as one HTML page.

Write one self-contained page with runs, tests and trends.

    watchtest history html -o report.html --open
"""

from __future__ import annotations

import argparse
import tempfile
import time
import webbrowser
from pathlib import Path

from watchtest.client.history_access import query_history, write_report
from watchtest.client.history_options import add_filters, add_limit, chosen_runs, parse_age
from watchtest.errors import UsageError
from watchtest.history.reports.html_page import page, page_data
from watchtest.workspace.folder import find_workspace


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "file to write (default: watchtest-history.html)"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=text)
    parser.add_argument("--open", action="store_true", help="open it in a browser")
    add_limit(parser, "--runs", 300, "include the latest N runs")
    text = "only the last AGE: 90m, 12h, 7d, 4w, or all"
    parser.add_argument("--since", type=parse_age, metavar="AGE", help=text)
    add_filters(parser, with_json=False, with_lane=False)


def run(arguments: argparse.Namespace) -> int:
    name, runs = find_workspace(arguments.workspace).name, chosen_runs(arguments)
    data = query_history(arguments, lambda history: page_data(history, runs, name, time.time(), arguments.runs), None)
    if data is None:
        raise UsageError("history html: there are no runs yet", hint="start one: watchtest watch")
    # A page that is only to be looked at does not belong into the project.
    is_temporary = arguments.open and arguments.output is None
    folder = Path(tempfile.mkdtemp(prefix="watchtest-")) if is_temporary else Path()
    path = arguments.output or folder / "watchtest-history.html"
    write_report(path, page(data))
    print(path)
    if arguments.open and not webbrowser.open(path.absolute().as_uri()):
        raise UsageError(f"history html --open: no browser found; the page is {path}")
    return 0
