"""`watchtest history slowest`: show where the time goes.

List the tests that take the most time.

    watchtest history slowest -n 30
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
)
from watchtest.client.history_tables import NARROW, bar, format_seconds, make_console, plain_table, sparkline
from watchtest.commands import Subparsers, add_command

if TYPE_CHECKING:
    from watchtest.history.queries.slow_tests import SlowTest

NOTABLE_GROWTH = 1.3


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "slowest", run, __doc__)
    parser.add_argument(
        "-n", dest="limit", type=parse_limit, default=15, metavar="N", help="number of tests (default: 15)"
    )
    parser.add_argument(
        "--runs", type=parse_limit, default=50, metavar="N", help="look at the latest N runs (default: 50)"
    )
    add_filters(parser)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.history.queries.json_answers import to_json
    from watchtest.history.queries.slow_tests import slowest

    found = query_history(
        arguments,
        lambda connection: slowest(
            connection,
            workspace=chosen_workspace(arguments),
            lane=chosen_lane(arguments),
            limit=arguments.limit,
            runs=arguments.runs,
        ),
        (),
    )
    if arguments.json:
        print_json({"tests": to_json(found)})
    elif found:
        _print_slowest(found)
    else:
        print("no runs yet")
    return 0


def _print_slowest(found: tuple[SlowTest, ...]) -> None:
    console, styled = make_console()
    is_narrow = console.width < NARROW
    headings = ["median", "share", "test"] if is_narrow else ["median", "longest", "share", "", "latest", "test"]
    table = plain_table(headings, right=("median", "longest", "share"))
    most = max(test.share for test in found) or 1.0
    for test in found:
        name = styled(test.identity)
        if test.growth is not None and test.growth >= NOTABLE_GROWTH:
            name.append(f"  takes {test.growth:.1f}x as long as before", style="yellow")
        share = f"{test.share:.0%}"
        if is_narrow:
            table.add_row(format_seconds(test.median_s), share, name)
            continue
        block = styled(bar(test.share / most, 10, console.encoding), "cyan")
        recent = styled(sparkline(test.durations_s[-20:], console.encoding))
        table.add_row(format_seconds(test.median_s), format_seconds(test.longest_s), share, block, recent, name)
    console.print(table)
