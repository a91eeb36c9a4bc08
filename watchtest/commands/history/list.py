"""`watchtest history list`: list the latest runs.

List the latest runs, newest first.

    watchtest history list -n 50 --state failed
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from watchtest.client.history_access import print_answer, query_history
from watchtest.client.history_options import add_filters, add_limit, chosen_runs
from watchtest.client.history_tables import Screen, counts, format_time, state, style
from watchtest.core.model import RunState
from watchtest.core.text import duration, short
from watchtest.history.queries.json_answers import run_json
from watchtest.history.queries.run_queries import PastRun, recent_runs

FIRST_TO_GO = ("branch", "tree", "by", "lane", "took", "when")
"""The columns that are left out on a narrow terminal, in this order."""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_limit(parser, "-n", 20, "number of runs")
    states = [state.value for state in RunState]
    text = "only runs in this state; may be repeated"
    parser.add_argument("--state", action="append", default=[], choices=states, metavar="STATE", help=text)
    parser.add_argument("--branch", metavar="NAME", help="only runs of this branch")
    parser.add_argument("--full", action="store_true", help="only runs of all tests")
    add_filters(parser, since="all")


def run(arguments: argparse.Namespace) -> int:
    states = [RunState(state) for state in arguments.state]
    chosen = replace(chosen_runs(arguments), states=states, branch=arguments.branch, only_full=arguments.full)
    runs = query_history(arguments, lambda connection: recent_runs(connection, chosen, limit=arguments.limit), ())
    is_filtered = arguments.lane or arguments.state or arguments.branch or arguments.full or arguments.since
    document = {"runs": [run_json(run) for run in runs]}
    if not runs:
        return print_answer(arguments, document, lambda: print("no matching runs" if is_filtered else "no runs yet"))
    return print_answer(arguments, document, lambda: _print(runs, with_workspace=arguments.all_worktrees))


def _print(runs: tuple[PastRun, ...], *, with_workspace: bool) -> None:
    screen = Screen()
    screen.table(
        [
            ("run", [run.id for run in runs]),
            ("when", [format_time(run.queued_at) for run in runs]),
            ("lane", [run.lane.value for run in runs]),
            ("by", [run.trigger.value if run.imported_from is None else "import" for run in runs]),
            ("state", [screen.text(state(run, is_short=True), style(run)) for run in runs]),
            ("tests", [counts(run) for run in runs]),
            ("took", ["" if run.duration_s is None else duration(run.duration_s) for run in runs]),
            ("tree", [short(run.tree or "") for run in runs]),
            ("branch", [(run.branch or "")[:30] for run in runs]),
            *([("workspace", [run.workspace for run in runs])] if with_workspace else []),
        ],
        right=("took",),
        first_to_go=FIRST_TO_GO,
    )
