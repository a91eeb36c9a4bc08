"""`watchtest history compare`: compare two runs.

Show new failures, fixed tests, tests that fail in another way, and slower ones.

    watchtest history compare last-green last
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from watchtest.client.history_access import print_answer, query_runs
from watchtest.client.history_options import add_filters
from watchtest.client.history_tables import Screen, describe_run, format_seconds
from watchtest.core.text import names
from watchtest.history.queries.run_comparison import Comparison, TestPair, compare

MOST_SHOWN = 30


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", help="the earlier run: an id, or last, last-failed, last-green")
    parser.add_argument("after", metavar="B", nargs="?", default="last", help="the later run (default: last)")
    parser.add_argument("--all", action="store_true", help="list all tests, however many")
    add_filters(parser, with_lane=False)


def run(arguments: argparse.Namespace) -> int:
    found = query_runs(arguments, compare, arguments.before, arguments.after)
    return print_answer(arguments, found, lambda: _print(found, 10**9 if arguments.all else MOST_SHOWN))


def _print(found: Comparison, most: int) -> None:
    screen = Screen()
    screen.print(f"from {describe_run(found.before)}: {found.before.state.value}")
    screen.print(f"to   {describe_run(found.after)}: {found.after.state.value}")
    changed = "unknown" if found.paths is None else names(found.paths, 10) or "nothing"
    screen.print(f"changed between them: {changed}", style="dim")
    parts: list[tuple[str, str, tuple[TestPair, ...], Callable[[TestPair], str]]] = [
        ("new failures", "bold red", found.new_failures, _new),
        ("still failing, with another message", "red", found.failing_otherwise, _failing_otherwise),
        ("still failing", "red", found.failing_alike, lambda pair: f"  {pair.after.signature}" if pair.after else ""),
        ("fixed", "green", found.fixed, lambda _: ""),
        ("added", "", found.added, lambda pair: f"  {pair.after.outcome.value}" if pair.after else ""),
        ("removed", "", found.removed, lambda _: ""),
        ("slower", "yellow", found.slower, _slower),
        ("not run or skipped in one of the two runs", "dim", found.not_run, _not_run),
    ]
    for title, style, pairs, describe in parts:
        if pairs:
            screen.print(f"\n{title}: {len(pairs)}", style=style)
        for pair in pairs[:most]:
            screen.print(f"  {pair.identity}{describe(pair)}")
        if len(pairs) > most:
            screen.print(f"  … and {len(pairs) - most} more; --all shows them", style="dim")
    if not any(pairs for _, _, pairs, _ in parts):
        screen.print("\nno test differs")


def _new(pair: TestPair) -> str:
    was = pair.before.outcome.value if pair.before is not None else "missing or not run"
    return f"  (was {was})  {pair.after.signature if pair.after else ''}"


def _failing_otherwise(pair: TestPair) -> str:
    return f"\n    was {pair.before.signature}\n    is  {pair.after.signature}" if pair.before and pair.after else ""


def _slower(pair: TestPair) -> str:
    return "  " + " -> ".join(format_seconds(each.duration_s) for each in (pair.before, pair.after) if each)


def _not_run(pair: TestPair) -> str:
    runs = (("A", pair.before), ("B", pair.after))
    return f"  ({', '.join(f'{result.outcome.value} in {run}' for run, result in runs if result is not None)})"
