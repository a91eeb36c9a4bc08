"""`watchtest history export`: export a run as JUnit XML or CTRF JSON.

Export one run for other tools.

    watchtest history export last -o report.xml
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from watchtest import __version__
from watchtest.client.history_access import REPORT_FORMATS, query_runs, write_report
from watchtest.client.history_options import add_filters, add_run
from watchtest.core.model import RunState
from watchtest.core.text import one_line
from watchtest.history.queries.flaky_tests import flaky_now
from watchtest.history.queries.run_queries import PastRun, run_detail
from watchtest.history.store.database import Connection

COMPLETE_STATES = (RunState.PASSED, RunState.FAILED, RunState.NO_TESTS)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    text = "format of the report (default: ctrf for *.json, otherwise junit)"
    parser.add_argument("--format", choices=REPORT_FORMATS, help=text)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="file to write (default: standard output)")
    add_filters(parser, with_json=False, with_lane=False)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.history.reports.report_export import ctrf, junit

    output: Path | None = arguments.output
    is_json = output is not None and output.suffix == ".json"

    def report(connection: Connection, run: PastRun) -> tuple[PastRun, str]:
        found = run_detail(connection, run)
        if (arguments.format or ("ctrf" if is_json else "junit")) == "junit":
            return run, junit(found)
        return run, ctrf(found, __version__, flaky_now(connection, run.workspace, time.time()))

    run, text = query_runs(arguments, report, arguments.name)
    if run.state not in COMPLETE_STATES:
        # Neither format can express such a state, and the partial results must not pass for a green run.
        was = f"run {run.id} was {run.state.value}{f' ({one_line(run.reason)})' if run.reason else ''}"
        print(f"{was}: the report has only the results up to then", file=sys.stderr)
    if output is None:
        sys.stdout.write(text)
    else:
        write_report(output, text)
        print(output)
    return 0
