"""`watchtest history trend`: show full runs over time.

Show the duration and results of runs of all tests over time.

    watchtest history trend --by week
"""

from __future__ import annotations

import argparse

from watchtest.client.history_access import print_answer, query_history
from watchtest.client.history_options import add_filters, chosen_runs
from watchtest.client.history_tables import NARROW, Screen, format_seconds
from watchtest.history.queries.trends import Bucket, trend

DAYS_SHOWN = 60


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "one line per run, day or week (default: day)"
    parser.add_argument("--by", choices=("run", "day", "week"), default="day", help=text)
    add_filters(parser, since="90d")


def run(arguments: argparse.Namespace) -> int:
    runs, by = chosen_runs(arguments), arguments.by
    found = query_history(arguments, lambda connection: trend(connection, runs, by), ())
    return print_answer(arguments, {"by": by, "buckets": found}, lambda: _print(found, by))


def _print(found: tuple[Bucket, ...], by: str) -> None:
    if not found:
        print("no full runs in that time; only runs of all tests make a trend")
        return
    screen = Screen()
    shown = found[-DAYS_SHOWN:]
    longest = max(bucket.run_s for bucket in shown) or 1.0
    green = [bucket.green / bucket.runs for bucket in shown]
    styles = ["green" if part == 1 else "red" if part == 0 else "yellow" for part in green]
    red = "red" if screen.width < NARROW else "red per run"
    if len(found) > len(shown):
        text = f"{len(found) - len(shown)} earlier lines are not shown; use --by week or --json"
        screen.print(text, style="dim", wrap=True)
    screen.table(
        [
            (by, [bucket.name for bucket in shown]),
            ("runs", [str(bucket.runs) for bucket in shown]),
            ("green", [screen.text(f"{part:.0%}", style) for part, style in zip(green, styles, strict=True)]),
            ("", [screen.bar(part, 10, "green") for part in green]),
            ("tests", [str(bucket.tests) for bucket in shown]),
            (red, [screen.text(f"{bucket.red:.1f}", "red" if bucket.red else "dim") for bucket in shown]),
            ("run", [format_seconds(bucket.run_s) for bucket in shown]),
            (" ", [screen.bar(bucket.run_s / longest, 15, "cyan") for bucket in shown]),
        ],
        right=("runs", "green", "tests", red, "run"),
        only_wide=("runs", "", "tests", " "),
    )
