"""`watchtest history slowest`: show where the time goes.

List the tests that take the most time.

    watchtest history slowest -n 30
"""

from __future__ import annotations

import argparse

from watchtest.client.history_access import print_answer, query_history
from watchtest.client.history_options import add_filters, add_limit, chosen_runs
from watchtest.client.history_tables import Screen, format_seconds
from watchtest.history.queries.slow_tests import SlowTest, slowest

NOTABLE_GROWTH = 1.3


def add_options(parser: argparse.ArgumentParser) -> None:
    add_limit(parser, "-n", 15, "number of tests")
    add_limit(parser, "--runs", 50, "look at the latest N runs")
    add_filters(parser)


def run(arguments: argparse.Namespace) -> int:
    runs, window, limit = chosen_runs(arguments), arguments.runs, arguments.limit
    found = query_history(arguments, lambda connection: slowest(connection, runs, window=window, limit=limit), ())
    return print_answer(arguments, {"tests": found}, lambda: _print(found) if found else print("no runs yet"))


def _print(found: tuple[SlowTest, ...]) -> None:
    screen = Screen()
    names = [screen.text(test.identity) for test in found]
    for name, test in zip(names, found, strict=True):
        if test.growth is not None and test.growth >= NOTABLE_GROWTH:
            name.append(f"  takes {test.growth:.1f}x as long as before", style="yellow")
    most = max(test.share for test in found) or 1.0
    screen.table(
        [
            ("median", [format_seconds(test.median_s) for test in found]),
            ("longest", [format_seconds(test.longest_s) for test in found]),
            ("share", [f"{test.share:.0%}" for test in found]),
            ("", [screen.bar(test.share / most, 10, "cyan") for test in found]),
            ("latest", [screen.sparkline(test.durations_s[-20:]) for test in found]),
            ("test", names),
        ],
        right=("median", "longest", "share"),
        only_wide=("longest", "", "latest"),
    )
