"""`watchtest history analyse`: group the failures of a run, and name the files that probably caused them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from watchtest.client.history_access import (
    NAMES_OF_RUNS,
    add_filters,
    answer,
    asked_workspace,
    print_json,
    run_named,
    unknown_run,
)
from watchtest.client.history_tables import Say, console_and_say, names, run_words
from watchtest.commands import Subparsers, add_command

if TYPE_CHECKING:
    from rich.console import Console

    from watchtest.history.queries.failure_analysis import Break, Cluster
    from watchtest.history.queries.run_queries import PastRun
    from watchtest.history.store.database import Connection

MOST_TESTS = 10


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers,
        "analyse",
        run,
        help="group the failures of a run and name suspects",
        description="Group similar failures; show when each group last passed, when it first failed, "
        "and which files changed in between.",
        examples=("watchtest history analyse",),
    )
    parser.add_argument("name", nargs="?", default="last", metavar="RUN", help=NAMES_OF_RUNS)
    add_filters(parser, lane=False)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.history.queries.failure_analysis import analyse
    from watchtest.history.queries.json_answers import brief, told

    def question(connection: Connection) -> tuple[PastRun, tuple[Cluster, ...]]:
        run = run_named(connection, arguments.name, asked_workspace(arguments), "analyse")
        return run, analyse(connection, run)

    found = answer(arguments, question)
    if found is None:
        raise unknown_run("analyse", arguments.name, [])
    run, clusters = found
    if arguments.json:
        print_json({"run": brief(run), "clusters": told(clusters)})
        return 0
    console, say = console_and_say()
    console.print(say(f"{run_words(run)}: {run.state.value}{f', {run.reason}' if run.reason else ''}"), soft_wrap=True)
    if not clusters:
        console.print(say("no test was red"))
    for cluster in clusters:
        _print(console, say, cluster)
    return 0


def _print(console: Console, say: Say, cluster: Cluster) -> None:
    from watchtest.core.text import one_line, tests

    console.print()
    console.print(say(f"{tests(len(cluster.tests))}: {cluster.signature}", "bold red"), soft_wrap=True)
    at = cluster.example.crash or cluster.example.where
    place = f"{at.file}:{at.line}: " if at is not None else ""
    console.print(say(f"  for example {place}{one_line(cluster.example.message)}", "dim"), soft_wrap=True)
    for each in cluster.breaks:
        _print_break(console, say, each)


def _print_break(console: Console, say: Say, each: Break) -> None:
    for test in each.tests[:MOST_TESTS]:
        console.print(say(f"  {test}"), soft_wrap=True)
    if len(each.tests) > MOST_TESTS:
        console.print(say(f"  … and {len(each.tests) - MOST_TESTS} more", "dim"))
    passed = run_words(each.passed) if each.passed is not None else "in no run that is kept"
    console.print(say(f"    last passed   {passed}"), soft_wrap=True)
    console.print(say(f"    first failed  {run_words(each.failed)}"), soft_wrap=True)
    suspects = "not known" if each.suspects is None else names(each.suspects, 15) or "none: nothing had changed"
    console.print(say(f"    suspects      {suspects}", "bold"), soft_wrap=True)
    if each.this_way.number != each.failed.number:
        console.print(say(f"    in this way   since {run_words(each.this_way)}"), soft_wrap=True)
        if each.turned_by:
            console.print(say(f"    changed then  {names(each.turned_by, 15)}"), soft_wrap=True)
