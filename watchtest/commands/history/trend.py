"""`watchtest history trend`: show full runs over time.

Show the duration and results of runs of all tests over time.

    watchtest history trend --by week
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from watchtest.client.history_access import (
    add_filters,
    chosen_lane,
    chosen_workspace,
    print_json,
    query_history,
    since_time,
)
from watchtest.client.history_tables import NARROW, bar, format_seconds, make_console, plain_table
from watchtest.commands import Subparsers, add_command

if TYPE_CHECKING:
    from watchtest.history.queries.trends import Bucket

DAYS_SHOWN = 60


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "trend", run, __doc__)
    parser.add_argument(
        "--by", choices=("run", "day", "week"), default="day", help="one line per run, day or week (default: day)"
    )
    add_filters(parser, since="90d")


def run(arguments: argparse.Namespace) -> int:
    from watchtest.history.queries.json_answers import to_json
    from watchtest.history.queries.trends import trend

    found = query_history(
        arguments,
        lambda connection: trend(
            connection,
            workspace=chosen_workspace(arguments),
            lane=chosen_lane(arguments),
            since=since_time(arguments),
            by=arguments.by,
        ),
        (),
    )
    if arguments.json:
        print_json({"by": arguments.by, "buckets": to_json(found)})
    elif found:
        _print_trend(found, arguments.by)
    else:
        print("no full runs in that time; only runs of all tests make a trend")
    return 0


def _print_trend(found: tuple[Bucket, ...], by: str) -> None:
    console, styled = make_console()
    left_out = len(found) - DAYS_SHOWN
    shown = found[-DAYS_SHOWN:]
    is_narrow = console.width < NARROW
    wide = [by, "runs", "green", "", "tests", "red per run", "run", " "]
    headings = [by, "green", "red", "run"] if is_narrow else wide
    table = plain_table(headings, right=("runs", "green", "tests", "red per run", "red", "run"))
    longest = max(bucket.run_s for bucket in shown) or 1.0
    for bucket in shown:
        green = bucket.green / bucket.runs
        style = "green" if green == 1 else "red" if green == 0 else "yellow"
        part, red = styled(f"{green:.0%}", style), styled(f"{bucket.red:.1f}", "red" if bucket.red else "dim")
        name, took = styled(bucket.name), format_seconds(bucket.run_s)
        if is_narrow:
            table.add_row(name, part, red, took)
            continue
        runs, tests = str(bucket.runs), str(bucket.tests)
        blocks = (bar(green, 10, console.encoding), bar(bucket.run_s / longest, 15, console.encoding))
        table.add_row(name, runs, part, styled(blocks[0], "green"), tests, red, took, styled(blocks[1], "cyan"))
    if left_out > 0:
        console.print(styled(f"{left_out} earlier lines are not shown; use --by week or --json", "dim"))
    console.print(table)
