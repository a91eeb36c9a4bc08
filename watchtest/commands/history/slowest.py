"""`watchtest history slowest`: list the tests that take the most time."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from watchtest.client.history_access import (
    add_filters,
    answer,
    asked_lane,
    asked_workspace,
    limit,
    print_json,
)
from watchtest.client.history_tables import NARROW, bar, console_and_say, plain_table, seconds, spark
from watchtest.commands import Subparsers, add_command

if TYPE_CHECKING:
    from watchtest.history.queries.slow_tests import SlowTest


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers,
        "slowest",
        run,
        help="show where the time goes",
        description="List the tests that take the most time.",
        examples=("watchtest history slowest -n 30",),
    )
    parser.add_argument("-n", dest="limit", type=limit, default=15, metavar="N", help="number of tests (default: 15)")
    parser.add_argument("--runs", type=limit, default=50, metavar="N", help="look at the latest N runs (default: 50)")
    add_filters(parser)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.history.queries.json_answers import told
    from watchtest.history.queries.slow_tests import slowest

    found = (
        answer(
            arguments,
            lambda connection: slowest(
                connection,
                workspace=asked_workspace(arguments),
                lane=asked_lane(arguments),
                limit=arguments.limit,
                runs=arguments.runs,
            ),
        )
        or ()
    )
    if arguments.json:
        print_json({"tests": told(found)})
    elif found:
        _print_slowest(found)
    else:
        print("no runs yet")
    return 0


def _print_slowest(found: tuple[SlowTest, ...]) -> None:
    console, say = console_and_say()
    is_narrow = console.width < NARROW
    headings = ["median", "share", "test"] if is_narrow else ["median", "longest", "share", "", "latest", "test"]
    table = plain_table(headings, right=("median", "longest", "share"))
    most = max(test.share for test in found) or 1.0
    for test in found:
        grown = test.growth
        name = say(test.identity)
        if grown is not None and grown >= 1.3:
            name.append(f"  {grown:.1f}x slower than before", style="yellow")
        share = f"{test.share:.0%}"
        if is_narrow:
            table.add_row(seconds(test.median_s), share, name)
            continue
        block = say(bar(test.share / most, 10, console.encoding), "cyan")
        recent = say(spark(test.durations_s[-20:], console.encoding))
        table.add_row(seconds(test.median_s), seconds(test.longest_s), share, block, recent, name)
    console.print(table)
