"""`watchtest history export`: export a run as JUnit XML or CTRF JSON.

Export one run for other tools.

    watchtest history export last -o report.xml
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from watchtest.client.history_access import REPORT_FORMATS, RUN_NAMES, query_run, write_report
from watchtest.commands import Subparsers, add_command
from watchtest.core.model import RunState

if TYPE_CHECKING:
    from watchtest.history.queries.run_queries import PastRun
    from watchtest.history.store.database import Connection

COMPLETE_STATES = (RunState.PASSED, RunState.FAILED, RunState.NO_TESTS)


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "export", run, __doc__)
    parser.add_argument("name", nargs="?", default="last", metavar="RUN", help=RUN_NAMES)
    text = "format of the report (default: ctrf for *.json, otherwise junit)"
    parser.add_argument("--format", choices=REPORT_FORMATS, help=text)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="file to write (default: standard output)")
    parser.add_argument("--all-worktrees", action="store_true", help="include all worktrees of the repository")


def run(arguments: argparse.Namespace) -> int:
    run, text = query_run(arguments, "export", lambda connection, run: _report(connection, run, arguments))
    if run.state not in COMPLETE_STATES:
        # Neither format can express such a state, and the partial results must not pass for a green run.
        from watchtest.core.text import one_line

        was = f"run {run.id} was {run.state.value}{f' ({one_line(run.reason)})' if run.reason else ''}"
        print(f"{was}: the report has only the results up to then", file=sys.stderr)
    if arguments.output is None:
        sys.stdout.write(text)
    else:
        write_report(arguments.output, text)
        print(arguments.output)
    return 0


def _report(connection: Connection, run: PastRun, arguments: argparse.Namespace) -> str:
    from watchtest import __version__
    from watchtest.history.queries.flaky_tests import flaky_now
    from watchtest.history.queries.run_queries import run_detail
    from watchtest.history.reports.report_export import ctrf, junit

    found = run_detail(connection, run)
    is_json = arguments.output is not None and arguments.output.suffix == ".json"
    if (arguments.format or ("ctrf" if is_json else "junit")) == "junit":
        return junit(found)
    return ctrf(found, __version__, flaky_now(connection, run.workspace, time.time()))
