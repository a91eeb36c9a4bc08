"""`watchtest history test`: show the outcomes and durations of one test."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from watchtest.client.history_access import (
    add_filters,
    answer,
    asked_lane,
    asked_workspace,
    limit,
    print_json,
    test_named,
)
from watchtest.client.history_tables import LETTERS, Say, console_and_say, names, run_words, seconds, spark, strip, when
from watchtest.commands import Subparsers, add_command
from watchtest.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from watchtest.history.queries.test_history import TestHistory, Turn
    from watchtest.history.store.database import Connection


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers,
        "test",
        run,
        help="show the history of one test",
        description="Show outcomes and durations of one test, since when it is red or green, and what changed then.",
        examples=("watchtest history test test_total",),
    )
    parser.add_argument("test", metavar="ID", help="test id, or a part of it that only one test has")
    parser.add_argument(
        "-n", dest="limit", type=limit, default=60, metavar="N", help="look at the latest N runs (default: 60)"
    )
    add_filters(parser)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.core.text import one_line
    from watchtest.history.queries.json_answers import told
    from watchtest.history.queries.test_history import history_of

    def question(connection: Connection) -> TestHistory | None:
        return history_of(
            connection,
            test_named(connection, arguments.test, "test"),
            workspace=asked_workspace(arguments),
            lane=asked_lane(arguments),
            limit=arguments.limit,
        )

    found = answer(arguments, question)
    if found is None:
        lane = f" of the {arguments.lane} lane" if arguments.lane else ""
        raise UsageError(
            f"history test {one_line(arguments.test)}: it ran in no run that is kept{lane}",
            hint="see: watchtest history list; --all-worktrees looks at all of them",
        )
    if arguments.json:
        print_json(told(found))
    else:
        _print(found)
    return 0


def _print(found: TestHistory) -> None:
    console, say = console_and_say()
    last = found.moments[-1]
    console.print(say(found.test.identity, "bold"), soft_wrap=True)
    for former in found.test.former:
        console.print(say(f"  was {former}", "dim"), soft_wrap=True)
    console.print()
    console.print(say(f"{last.outcome.value}", LETTERS[last.outcome][1]), say(_since(found)), sep="")
    if found.turn is not None:
        _print_turn(console, say, found.turn)
    console.print()
    width = max(10, console.width - 11)
    shown = found.moments[-width:]
    console.print(say("outcomes   ", "dim"), strip(moment.outcome for moment in shown), sep="", soft_wrap=True)
    took = [moment.duration_s for moment in shown]
    console.print(say("durations  ", "dim"), say(spark(took, console.encoding)), sep="", soft_wrap=True)
    print_facts(console, say, found)


def print_facts(console: Console, say: Say, found: TestHistory) -> None:
    from statistics import median

    from watchtest.core.text import count

    took = [moment.duration_s for moment in found.moments]
    lane = f" of the {found.lane.value} lane" if found.lane is not None else ""
    runs = f"{count(len(found.moments), 'run')}{lane}, {count(found.flips, 'flip')}"
    console.print(say(f"           {runs}; {seconds(median(took))} usually, {seconds(max(took))} at most", "dim"))
    if found.red_runs:
        console.print(say(f"           red in {count(found.red_runs, 'run')} of all that are kept", "dim"))
    for complaint in found.complaints:
        console.print()
        console.print(say(f"{complaint.times}x  {complaint.signature}", "red"), soft_wrap=True)
        console.print(
            say(f"    first {run_words(complaint.first)}, last {run_words(complaint.last)}", "dim"), soft_wrap=True
        )


def _since(found: TestHistory) -> str:
    from watchtest.core.text import count

    last = found.moments[-1]
    if found.turn is None:
        runs = count(len(found.moments), "run")
        none = "" if last.outcome.is_red else "; red in none that is kept"
        return f" in the latest {runs}, since {when(found.moments[0].run.queued_at)}{none}"
    return f" since {run_words(found.turn.first)}"


def _print_turn(console: Console, say: Say, turn: Turn) -> None:
    if turn.before is not None:
        console.print(say(f"  before: {run_words(turn.before)}", "dim"))
    if turn.paths is None:
        console.print(say("  what changed then is not known", "dim"))
    elif not turn.paths:
        console.print(say("  nothing had changed: the same tree"))
    else:
        console.print(say(f"  changed then: {names(turn.paths, 10)}"), soft_wrap=True)
