"""`watchtest history test`: show the history of one test.

Show outcomes and durations of one test, since when it is red or green, and what changed then.

    watchtest history test test_total
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
    require_test,
)
from watchtest.client.history_tables import (
    LETTERS,
    Styled,
    describe_run,
    format_seconds,
    format_time,
    list_paths,
    make_console,
    outcome_strip,
    sparkline,
)
from watchtest.commands import Subparsers, add_command
from watchtest.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from watchtest.history.queries.test_history import TestHistory, TurningPoint
    from watchtest.history.store.database import Connection


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "test", run, __doc__)
    parser.add_argument("test", metavar="ID", help="test id, or a part of it that only one test has")
    parser.add_argument(
        "-n", dest="limit", type=parse_limit, default=60, metavar="N", help="look at the latest N runs (default: 60)"
    )
    add_filters(parser)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.core.text import one_line
    from watchtest.history.queries.json_answers import to_json
    from watchtest.history.queries.test_history import history_of

    def query(connection: Connection) -> TestHistory | None:
        return history_of(
            connection,
            require_test(connection, arguments.test, "test"),
            workspace=chosen_workspace(arguments),
            lane=chosen_lane(arguments),
            limit=arguments.limit,
        )

    found = query_history(arguments, query, None)
    if found is None:
        lane = f" of the {arguments.lane} lane" if arguments.lane else ""
        raise UsageError(
            f"history test {one_line(arguments.test)}: it is in no recorded run{lane}",
            hint="see: watchtest history list; --all-worktrees includes all worktrees",
        )
    if arguments.json:
        print_json(to_json(found))
    else:
        _print(found)
    return 0


def _print(found: TestHistory) -> None:
    console, styled = make_console()
    last = found.moments[-1]
    console.print(styled(found.test.identity, "bold"), soft_wrap=True)
    for former in found.test.former:
        console.print(styled(f"  was {former}", "dim"), soft_wrap=True)
    console.print()
    console.print(styled(f"{last.outcome.value}", LETTERS[last.outcome][1]), styled(_since(found)), sep="")
    if found.turn is not None:
        _print_turn(console, styled, found.turn)
    console.print()
    width = max(10, console.width - 11)
    shown = found.moments[-width:]
    console.print(styled("outcomes   ", "dim"), outcome_strip(point.outcome for point in shown), sep="", soft_wrap=True)
    took = [point.duration_s for point in shown]
    console.print(styled("durations  ", "dim"), styled(sparkline(took, console.encoding)), sep="", soft_wrap=True)
    _print_facts(console, styled, found)


def _print_facts(console: Console, styled: Styled, found: TestHistory) -> None:
    from statistics import median

    from watchtest.core.text import count

    took = [point.duration_s for point in found.moments]
    lane = f" of the {found.lane.value} lane" if found.lane is not None else ""
    runs = f"{count(len(found.moments), 'run')}{lane}, {count(found.flips, 'flip')}"
    console.print(
        styled(f"           {runs}; {format_seconds(median(took))} usually, {format_seconds(max(took))} at most", "dim")
    )
    if found.red_runs:
        console.print(styled(f"           red in {count(found.red_runs, 'run')} of the whole history", "dim"))
    for mode in found.complaints:
        console.print()
        console.print(styled(f"{mode.times}x  {mode.signature}", "red"), soft_wrap=True)
        console.print(
            styled(f"    first {describe_run(mode.first)}, last {describe_run(mode.last)}", "dim"), soft_wrap=True
        )


def _since(found: TestHistory) -> str:
    from watchtest.core.text import count

    last = found.moments[-1]
    if found.turn is None:
        runs = count(len(found.moments), "run")
        never_red = "" if last.outcome.is_red else "; never red in the history"
        return f" in the latest {runs}, since {format_time(found.moments[0].run.queued_at)}{never_red}"
    return f" since {describe_run(found.turn.first)}"


def _print_turn(console: Console, styled: Styled, turn: TurningPoint) -> None:
    console.print(styled(f"  before: {describe_run(turn.before)}", "dim"))
    if turn.paths is None:
        console.print(styled("  it is unknown what changed then", "dim"))
    elif not turn.paths:
        console.print(styled("  nothing changed: it is the same tree"))
    else:
        console.print(styled(f"  changed then: {list_paths(turn.paths, 10)}"), soft_wrap=True)
