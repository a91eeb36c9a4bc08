"""`watchtest history analyse`: group the failures of a run and name suspects.

Group similar failures; show when each group last passed, when it first failed, and which files changed in between.

    watchtest history analyse
"""

from __future__ import annotations

import argparse

from watchtest.client.history_access import print_answer, query_runs
from watchtest.client.history_options import add_filters, add_run
from watchtest.client.history_tables import Screen, describe_run
from watchtest.core.text import names, one_line, tests
from watchtest.history.queries.failure_analysis import Break, Cluster, analyse
from watchtest.history.queries.run_queries import PastRun
from watchtest.history.store.database import Connection

MOST_TESTS = 10


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_filters(parser, with_lane=False)


def run(arguments: argparse.Namespace) -> int:
    def query(connection: Connection, run: PastRun) -> tuple[PastRun, tuple[Cluster, ...]]:
        return run, analyse(connection, run)

    run, clusters = query_runs(arguments, query, arguments.name)
    return print_answer(arguments, {"run": run, "clusters": clusters}, lambda: _print(run, clusters))


def _print(run: PastRun, clusters: tuple[Cluster, ...]) -> None:
    screen = Screen()
    screen.print(f"{describe_run(run)}: {run.state.value}{f', {run.reason}' if run.reason else ''}")
    if not clusters:
        screen.print("no test was red")
    for cluster in clusters:
        screen.print(f"\n{tests(len(cluster.tests))}: {cluster.signature}", style="bold red")
        at = cluster.example.crash or cluster.example.where
        location = f"{at.file}:{at.line}: " if at is not None else ""
        screen.print(f"  for example {location}{one_line(cluster.example.message)}", style="dim")
        for each in cluster.breaks:
            _print_break(screen, each)


def _print_break(screen: Screen, each: Break) -> None:
    for test in each.tests[:MOST_TESTS]:
        screen.print(f"  {test}")
    if len(each.tests) > MOST_TESTS:
        screen.print(f"  … and {len(each.tests) - MOST_TESTS} more", style="dim")
    screen.print(f"    last passed   {describe_run(each.passed) if each.passed is not None else 'in no recorded run'}")
    screen.print(f"    first failed  {describe_run(each.failed)}")
    suspects = "unknown" if each.suspects is None else names(each.suspects, 15) or "none: nothing changed"
    screen.print(f"    suspects      {suspects}", style="bold")
    if each.this_way.number != each.failed.number:
        screen.print(f"    like this     since {describe_run(each.this_way)}")
        if each.turned_by:
            screen.print(f"    changed then  {names(each.turned_by, 15)}")
