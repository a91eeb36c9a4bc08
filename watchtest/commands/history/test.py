"""`watchtest history test`: show the history of one test.

Show outcomes and durations of one test, since when it is red or green, and what changed then.

    watchtest history test test_total
"""

from __future__ import annotations

import argparse
from statistics import median

from watchtest.client import history_access, history_options
from watchtest.client.history_tables import LETTERS, Screen, describe_run, format_seconds, format_time
from watchtest.core.text import count, names, one_line
from watchtest.errors import UsageError
from watchtest.history.queries.test_history import TestHistory, history_of
from watchtest.history.store.database import Connection


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("test", metavar="ID", help="test id, or a part of it that only one test has")
    history_options.add_limit(parser, "-n", 60, "look at the latest N runs")
    history_options.add_filters(parser)


def run(arguments: argparse.Namespace) -> int:
    def query(connection: Connection) -> TestHistory | None:
        test = history_access.require_test(connection, arguments.test, "test")
        return history_of(connection, test, history_options.chosen_runs(arguments), limit=arguments.limit)

    found = history_access.query_history(arguments, query, None)
    if found is None:
        lane = f" of the {arguments.lane} lane" if arguments.lane else ""
        raise UsageError(
            f"history test {one_line(arguments.test)}: it is in no recorded run{lane}",
            hint="see: watchtest history list; --all-worktrees includes all worktrees",
        )
    return history_access.print_answer(arguments, found, lambda: _print(found))


def _print(found: TestHistory) -> None:
    screen = Screen()
    screen.print(found.test.identity, style="bold")
    for former in found.test.former:
        screen.print(f"  was {former}", style="dim")
    screen.print()
    _print_since(screen, found)
    screen.print()
    shown = found.moments[-max(10, screen.width - 11) :]
    outcomes, spent = [point.outcome for point in shown], [point.duration_s for point in shown]
    screen.print(screen.text("outcomes   ", "dim"), screen.outcome_strip(outcomes))
    screen.print(screen.text("durations  ", "dim"), screen.sparkline(spent))
    all_spent = [point.duration_s for point in found.moments]
    lane = f" of the {found.lane.value} lane" if found.lane is not None else ""
    runs = f"{count(len(found.moments), 'run')}{lane}, {count(found.flips, 'flip')}"
    times = f"{format_seconds(median(all_spent))} usually, {format_seconds(max(all_spent))} at most"
    screen.print(f"           {runs}; {times}", style="dim", wrap=True)
    if found.red_runs:
        screen.print(f"           red in {count(found.red_runs, 'run')} of the whole history", style="dim", wrap=True)
    for mode in found.complaints:
        screen.print(f"\n{mode.times}x  {mode.signature}", style="red")
        screen.print(f"    first {describe_run(mode.first)}, last {describe_run(mode.last)}", style="dim")


def _print_since(screen: Screen, found: TestHistory) -> None:
    """Print since when the test has its outcome, and what changed then."""
    last, turn = found.moments[-1].outcome, found.turn
    outcome = screen.text(last.value, LETTERS[last][1])
    if turn is None:
        since = f"{count(len(found.moments), 'run')}, since {format_time(found.moments[0].run.queued_at)}"
        never_red = "" if last.is_red else "; never red in the history"
        screen.print(outcome, f" in the latest {since}{never_red}", wrap=True)
        return
    screen.print(outcome, f" since {describe_run(turn.first)}", wrap=True)
    screen.print(f"  before: {describe_run(turn.before)}", style="dim", wrap=True)
    if turn.paths is None:
        screen.print("  it is unknown what changed then", style="dim")
    elif not turn.paths:
        screen.print("  nothing changed: it is the same tree")
    else:
        screen.print(f"  changed then: {names(turn.paths, 10)}")
