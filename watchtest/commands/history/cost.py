"""`watchtest history cost`: show time spent and saved.

Show the time spent on tests, and the time saved by leaving tests out.

    watchtest history cost --since 7d
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from watchtest.client.history_access import (
    add_filters,
    chosen_workspace,
    print_json,
    query_history,
    since_time,
)
from watchtest.client.history_tables import bar, make_console
from watchtest.commands import Subparsers, add_command

if TYPE_CHECKING:
    from watchtest.history.queries.trends import Cost


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "cost", run, __doc__)
    add_filters(parser, lane=False, since="30d")


def run(arguments: argparse.Namespace) -> int:
    from watchtest.history.queries.json_answers import to_json
    from watchtest.history.queries.trends import cost

    found = query_history(
        arguments,
        lambda connection: cost(connection, workspace=chosen_workspace(arguments), since=since_time(arguments)),
        (),
    )
    if arguments.json:
        print_json({"lanes": to_json(found)})
    elif found:
        _print_cost(found)
    else:
        print("no runs in that time")
    return 0


def _print_cost(found: tuple[Cost, ...]) -> None:
    from watchtest.core.text import count, duration

    console, styled = make_console()
    spent, saved = sum(each.spent_s for each in found), sum(each.saved_s for each in found)
    for each in found:
        console.print(styled(f"{each.lane} lane", "bold"))
        runs, results = count(each.runs, "run"), count(each.tests, "result")
        console.print(styled(f"  {runs}, {each.judged} with a verdict, {results}"))
        console.print(styled(f"  {duration(each.spent_s)} in total, {duration(each.testing_s)} of it in the tests"))
        if each.wasted_s:
            console.print(styled(f"  {duration(each.wasted_s)} in runs that were cancelled, superseded or broken"))
        if each.narrowed:
            narrowed = count(each.narrowed, "run")
            console.print(styled(f"  {duration(each.saved_s)} saved by leaving tests out of {narrowed}", "green"))
    whole = spent + saved
    if any(each.narrowed for each in found) and whole > 0:
        width = max(10, min(40, console.width - 24))
        console.print()
        for name, part, style in (("spent", spent, "cyan"), ("saved", saved, "green")):
            block = styled(bar(part / whole, width, console.encoding), style)
            console.print(styled(f"{name}  {duration(part):>7}  "), block, sep="")
        console.print(styled("saved: an estimate, compared with the usual time of a full run", "dim"))
