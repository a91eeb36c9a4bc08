"""`history slowest`, `history trend` and `history cost`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from watchtest.client.history_access import (
    add_filters,
    answer,
    asked_lane,
    asked_since,
    asked_workspace,
    limit,
    print_json,
)
from watchtest.client.history_tables import bar, console_and_say, plain_table, seconds, spark

if TYPE_CHECKING:
    from watchtest.history.queries.slow_tests import SlowTest
    from watchtest.history.queries.trends import Bucket, Cost

NARROW = 60
DAYS_SHOWN = 60


def _add_slowest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", dest="limit", type=limit, default=15, metavar="N", help="how many (default: 15)")
    parser.add_argument("--runs", type=limit, default=50, metavar="N", help="look at the latest N runs (default: 50)")
    add_filters(parser)
    parser.set_defaults(run=_slowest)


def _add_trend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", choices=("run", "day", "week"), default="day", help="a line each (default: day)")
    add_filters(parser, since="90d")
    parser.set_defaults(run=_trend)


def _add_cost(parser: argparse.ArgumentParser) -> None:
    add_filters(parser, lane=False, since="30d")
    parser.set_defaults(run=_cost)


ADD = {"slowest": _add_slowest, "trend": _add_trend, "cost": _add_cost}


# -- slowest ---------------------------------------------------------------------------------------


def _slowest(arguments: argparse.Namespace) -> int:
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


# -- trend -----------------------------------------------------------------------------------------


def _trend(arguments: argparse.Namespace) -> int:
    from watchtest.history.queries.json_answers import told
    from watchtest.history.queries.trends import trend

    found = (
        answer(
            arguments,
            lambda connection: trend(
                connection,
                workspace=asked_workspace(arguments),
                lane=asked_lane(arguments),
                since=asked_since(arguments),
                by=arguments.by,
            ),
        )
        or ()
    )
    if arguments.json:
        print_json({"by": arguments.by, "buckets": told(found)})
    elif found:
        _print_trend(found, arguments.by)
    else:
        print("no runs of all tests in that time; a trend is made of those alone")
    return 0


def _print_trend(found: tuple[Bucket, ...], by: str) -> None:
    console, say = console_and_say()
    left_out = len(found) - DAYS_SHOWN
    shown = found[-DAYS_SHOWN:]
    is_narrow = console.width < NARROW
    headings = [by, "green", "red", "run"] if is_narrow else [by, "runs", "green", "", "tests", "red a run", "run", " "]
    table = plain_table(headings, right=("runs", "green", "tests", "red a run", "red", "run"))
    longest = max(bucket.run_s for bucket in shown) or 1.0
    for bucket in shown:
        green = bucket.green / bucket.runs
        style = "green" if green == 1 else "red" if green == 0 else "yellow"
        part, red = say(f"{green:.0%}", style), say(f"{bucket.red:.1f}", "red" if bucket.red else "dim")
        name, took = say(bucket.name), seconds(bucket.run_s)
        if is_narrow:
            table.add_row(name, part, red, took)
            continue
        runs, tests = str(bucket.runs), str(bucket.tests)
        blocks = (bar(green, 10, console.encoding), bar(bucket.run_s / longest, 15, console.encoding))
        table.add_row(name, runs, part, say(blocks[0], "green"), tests, red, took, say(blocks[1], "cyan"))
    if left_out > 0:
        console.print(say(f"{left_out} before these; --by week, or --json, has them", "dim"))
    console.print(table)


# -- cost ------------------------------------------------------------------------------------------


def _cost(arguments: argparse.Namespace) -> int:
    from watchtest.history.queries.json_answers import told
    from watchtest.history.queries.trends import cost

    found = (
        answer(
            arguments,
            lambda connection: cost(connection, workspace=asked_workspace(arguments), since=asked_since(arguments)),
        )
        or ()
    )
    if arguments.json:
        print_json({"lanes": told(found)})
    elif found:
        _print_cost(found)
    else:
        print("no runs in that time")
    return 0


def _print_cost(found: tuple[Cost, ...]) -> None:
    from watchtest.core.text import duration

    console, say = console_and_say()
    spent, saved = sum(each.spent_s for each in found), sum(each.saved_s for each in found)
    for each in found:
        console.print(say(f"{each.lane} lane", "bold"))
        console.print(say(f"  {each.runs} runs, {each.judged} with a verdict, {each.tests} results"))
        console.print(say(f"  {duration(each.spent_s)} in all, {duration(each.testing_s)} of it in the tests"))
        if each.wasted_s:
            console.print(say(f"  {duration(each.wasted_s)} in runs that were cancelled, superseded or broken"))
        if each.narrowed:
            console.print(
                say(f"  {duration(each.saved_s)} saved by leaving tests out of {each.narrowed} runs", "green")
            )
    whole = spent + saved
    if any(each.narrowed for each in found) and whole > 0:
        width = max(10, min(40, console.width - 24))
        console.print()
        for name, part, style in (("spent", spent, "cyan"), ("saved", saved, "green")):
            block = say(bar(part / whole, width, console.encoding), style)
            console.print(say(f"{name}  {duration(part):>7}  "), block, sep="")
        console.print(say("saved: against the usual time of the full runs before; an estimate", "dim"))
