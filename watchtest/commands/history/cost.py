"""`watchtest history cost`: show time spent and saved.

Show the time spent on tests, and the time saved by leaving tests out.

    watchtest history cost --since 7d
"""

from __future__ import annotations

import argparse

from watchtest.client.history_access import print_answer, query_history
from watchtest.client.history_options import add_filters, chosen_runs
from watchtest.client.history_tables import Screen
from watchtest.core.text import count, duration
from watchtest.history.queries.trends import Cost, cost


def add_options(parser: argparse.ArgumentParser) -> None:
    add_filters(parser, with_lane=False, since="30d")


def run(arguments: argparse.Namespace) -> int:
    found = query_history(arguments, lambda connection: cost(connection, chosen_runs(arguments)), ())
    return print_answer(arguments, {"lanes": found}, lambda: _print(found))


def _print(found: tuple[Cost, ...]) -> None:
    screen = Screen()
    if not found:
        screen.print("no runs in that time")
    for each in found:
        screen.print(f"{each.lane} lane", style="bold")
        runs, results = count(each.runs, "run"), count(each.tests, "result")
        screen.print(f"  {runs}, {each.judged} with a verdict, {results}", wrap=True)
        screen.print(f"  {duration(each.spent_s)} in total, {duration(each.testing_s)} of it in the tests", wrap=True)
        if each.wasted_s:
            screen.print(f"  {duration(each.wasted_s)} in runs that were cancelled, superseded or broken", wrap=True)
        if each.narrowed:
            saved = f"{duration(each.saved_s)} saved by leaving tests out of {count(each.narrowed, 'run')}"
            screen.print(f"  {saved}", style="green", wrap=True)
    spent_s, saved_s = sum(each.spent_s for each in found), sum(each.saved_s for each in found)
    if any(each.narrowed for each in found) and spent_s + saved_s > 0:
        width = max(10, min(40, screen.width - 24))
        screen.print()
        for name, part, style in (("spent", spent_s, "cyan"), ("saved", saved_s, "green")):
            bar = screen.bar(part / (spent_s + saved_s), width, style)
            screen.print(f"{name}  {duration(part):>7}  ", bar)
        screen.print("saved: an estimate, compared with the usual time of a full run", style="dim", wrap=True)
