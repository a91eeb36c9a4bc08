"""`watchtest history analyse`: group the failures of a run and name suspects.

Group similar failures; show when each group last passed, when it first failed, and which files changed in between.

    watchtest history analyse
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from watchtest.client.history_access import RUN_NAMES, add_filters, print_json, query_run
from watchtest.client.history_tables import Styled, describe_run, list_paths, make_console
from watchtest.commands import Subparsers, add_command

if TYPE_CHECKING:
    from rich.console import Console

    from watchtest.history.queries.failure_analysis import Break, Cluster

MOST_TESTS = 10


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "analyse", run, __doc__)
    parser.add_argument("name", nargs="?", default="last", metavar="RUN", help=RUN_NAMES)
    add_filters(parser, lane=False)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.history.queries.failure_analysis import analyse
    from watchtest.history.queries.json_answers import run_summary, to_json

    run, clusters = query_run(arguments, "analyse", analyse)
    if arguments.json:
        print_json({"run": run_summary(run), "clusters": to_json(clusters)})
        return 0
    console, styled = make_console()
    console.print(
        styled(f"{describe_run(run)}: {run.state.value}{f', {run.reason}' if run.reason else ''}"), soft_wrap=True
    )
    if not clusters:
        console.print(styled("no test was red"))
    for cluster in clusters:
        _print(console, styled, cluster)
    return 0


def _print(console: Console, styled: Styled, cluster: Cluster) -> None:
    from watchtest.core.text import one_line, tests

    console.print()
    console.print(styled(f"{tests(len(cluster.tests))}: {cluster.signature}", "bold red"), soft_wrap=True)
    at = cluster.example.crash or cluster.example.where
    location = f"{at.file}:{at.line}: " if at is not None else ""
    console.print(styled(f"  for example {location}{one_line(cluster.example.message)}", "dim"), soft_wrap=True)
    for each in cluster.breaks:
        _print_break(console, styled, each)


def _print_break(console: Console, styled: Styled, each: Break) -> None:
    for test in each.tests[:MOST_TESTS]:
        console.print(styled(f"  {test}"), soft_wrap=True)
    if len(each.tests) > MOST_TESTS:
        console.print(styled(f"  … and {len(each.tests) - MOST_TESTS} more", "dim"))
    passed = describe_run(each.passed) if each.passed is not None else "in no recorded run"
    console.print(styled(f"    last passed   {passed}"), soft_wrap=True)
    console.print(styled(f"    first failed  {describe_run(each.failed)}"), soft_wrap=True)
    suspects = "unknown" if each.suspects is None else list_paths(each.suspects, 15) or "none: nothing changed"
    console.print(styled(f"    suspects      {suspects}", "bold"), soft_wrap=True)
    if each.this_way.number != each.failed.number:
        console.print(styled(f"    like this     since {describe_run(each.this_way)}"), soft_wrap=True)
        if each.turned_by:
            console.print(styled(f"    changed then  {list_paths(each.turned_by, 15)}"), soft_wrap=True)
