"""`watchtest history list`: list the latest runs.

List the latest runs, newest first.

    watchtest history list -n 50 --state failed
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from watchtest.client.history_access import (
    add_filters,
    chosen_lane,
    chosen_workspace,
    parse_limit,
    print_json,
    query_history,
    since_time,
)
from watchtest.client.history_tables import STYLES, counts, drop_columns, format_time, make_console, plain_table
from watchtest.commands import Subparsers, add_command
from watchtest.core.model import RunState

if TYPE_CHECKING:
    from watchtest.history.queries.run_queries import PastRun

FIRST_TO_GO = ("branch", "tree", "by", "lane", "took", "when")
"""The columns that are left out on a narrow terminal, in this order."""


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "list", run, __doc__)
    parser.add_argument(
        "-n", dest="limit", type=parse_limit, default=20, metavar="N", help="number of runs (default: 20)"
    )
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        choices=[state.value for state in RunState],
        metavar="STATE",
        help="only runs in this state; may be repeated",
    )
    parser.add_argument("--branch", metavar="NAME", help="only runs of this branch")
    parser.add_argument("--full", action="store_true", help="only runs of all tests")
    add_filters(parser, since="all")


def run(arguments: argparse.Namespace) -> int:
    from watchtest.history.queries.json_answers import run_json
    from watchtest.history.queries.run_queries import recent_runs

    workspace = chosen_workspace(arguments)
    runs = query_history(
        arguments,
        lambda connection: recent_runs(
            connection,
            limit=arguments.limit,
            workspace=workspace,
            lane=chosen_lane(arguments),
            states=[RunState(state) for state in arguments.state],
            since=since_time(arguments),
            branch=arguments.branch,
            only_full=arguments.full,
        ),
        (),
    )
    is_filtered = arguments.lane or arguments.state or arguments.branch or arguments.full or arguments.since
    if arguments.json:
        print_json({"runs": [run_json(run) for run in runs]})
    elif runs:
        _print_list(runs, with_workspace=workspace is None)
    else:
        print("no matching runs" if is_filtered else "no runs yet")
    return 0


def _print_list(runs: tuple[PastRun, ...], *, with_workspace: bool) -> None:
    from watchtest.core.text import duration, short

    console, styled = make_console()
    columns = {
        "run": [each.id for each in runs],
        "when": [format_time(each.queued_at) for each in runs],
        "lane": [each.lane.value for each in runs],
        "by": [each.trigger.value if each.imported_from is None else "import" for each in runs],
        "state": [each.state.value for each in runs],
        "tests": [counts(each) for each in runs],
        "took": ["" if each.duration_s is None else duration(each.duration_s) for each in runs],
        "tree": [short(each.tree or "") for each in runs],
        "branch": [(each.branch or "")[:30] for each in runs],
    }
    if with_workspace:
        columns["workspace"] = [each.workspace for each in runs]
    drop_columns(columns, FIRST_TO_GO, console.width)
    table = plain_table(list(columns), right=("took",))
    for run, row in zip(runs, zip(*columns.values(), strict=True), strict=True):
        styles = (STYLES.get(run.state, "") if heading == "state" else "" for heading in columns)
        table.add_row(*map(styled, row, styles))
    console.print(table)
