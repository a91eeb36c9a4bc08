"""`watchtest history show`: show one run.

Show the states and failures of one run.

    watchtest history show last-failed --output
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from watchtest.client.history_access import RUN_NAMES, add_filters, print_json, query_run
from watchtest.client.history_tables import STYLES, Styled, counts, format_seconds, format_time, make_console
from watchtest.commands import Subparsers, add_command
from watchtest.core.model import Outcome, RunState

if TYPE_CHECKING:
    from rich.console import Console

    from watchtest.history.queries.run_queries import PastResult, PastRun, RunDetail

OUTPUT_LINES = 40


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "show", run, __doc__)
    parser.add_argument("name", nargs="?", default="last", metavar="RUN", help=RUN_NAMES)
    parser.add_argument("--tests", action="store_true", help="show all tests, not only the failed ones")
    parser.add_argument("--output", action="store_true", help="show the complete output of the runner")
    add_filters(parser, lane=False)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.history.queries.json_answers import detail_json
    from watchtest.history.queries.run_queries import run_detail

    _, found = query_run(arguments, "show", run_detail)
    if arguments.json:
        print_json(detail_json(found))
    else:
        _print_run(found, with_tests=arguments.tests, with_output=arguments.output)
    return 0


def _print_run(detail: RunDetail, *, with_tests: bool, with_output: bool) -> None:
    from rich.table import Table

    from watchtest.core.text import clean, tail

    console, styled = make_console()
    run = detail.run
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, fact in _facts(detail):
        if fact:
            facts.add_row(name, styled(fact, STYLES.get(run.state, "") if name == "state" else ""))
    console.print(facts)
    for past in detail.final_results:
        if past.result.outcome.is_red:
            _print_failure(console, styled, past)
    if with_tests:
        _print_tests(console, styled, detail)
    has_nothing_else = not detail.results and run.state not in (RunState.PASSED, RunState.NO_TESTS)
    if detail.raw_output and (with_output or has_nothing_else):
        lines = clean(detail.raw_output).splitlines() if with_output else tail(detail.raw_output, OUTPUT_LINES)
        console.print(styled("\n" + "\n".join(lines)), soft_wrap=True)


def _facts(detail: RunDetail) -> list[tuple[str, str]]:
    from watchtest.core.text import duration, tests

    run = detail.run
    changes = {True: "with uncommitted changes", False: "clean", None: ""}[run.is_dirty]
    steps = " > ".join(f"{each.state.value} +{duration(each.at - run.queued_at)}" for each in detail.transitions)
    scope = run.because if run.selected is None else f"{tests(run.selected)}: {run.because}"
    return [
        ("run", run.id),
        ("state", run.state.value + (f": {run.reason}" if run.reason else "")),
        ("tests", counts(run)),
        ("when", format_time(run.queued_at)),
        ("steps", steps),
        ("times", _times(run)),
        ("from", run.imported_from or ""),
        ("lane", f"{run.lane.value}, triggered by {run.trigger.value}"),
        ("selection", scope),
        ("tree", run.tree or ""),
        ("head", " ".join(part for part in (run.head, run.branch, changes) if part)),
        ("box", run.environment or ""),
        ("workspace", run.workspace),
    ]


def _times(run: PastRun) -> str:
    parts = ("wait", "sync", "select", "start", "run")
    spent = [(part, getattr(run.timings, f"{part}_s")) for part in parts]
    return " · ".join(f"{part} {format_seconds(took)}" for part, took in spent if took is not None)


def _print_failure(console: Console, styled: Styled, past: PastResult) -> None:
    from watchtest.core.text import clean

    result, failure = past.result, past.result.failure
    where = f"  {failure.where.file}:{failure.where.line}" if failure and failure.where else ""
    attempt = f"  ({_attempt(past)})" if past.attempt > 1 else ""
    console.print()
    console.print(styled(f"{result.outcome.value.upper()} {result.test}{where}{attempt}", "bold red"), soft_wrap=True)
    if failure is None:
        return
    for part in (failure.text or failure.message, failure.output):
        for line in clean(part).rstrip().splitlines():
            console.print(styled(f"    {line}"), soft_wrap=True)


def _print_tests(console: Console, styled: Styled, detail: RunDetail) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("outcome", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("test", overflow="fold")
    for past in detail.results:
        outcome = past.result.outcome
        style = "red" if outcome.is_red else "green" if outcome is Outcome.PASSED else ""
        attempt = f" ({_attempt(past)})" if past.attempt > 1 else ""
        table.add_row(
            styled(outcome.value, style), styled(f"{past.result.duration_s:.3f}"), styled(past.result.test + attempt)
        )
    console.print()
    console.print(table)


def _attempt(past: PastResult) -> str:
    from watchtest.history.store.columns import AttemptKind

    how = {AttemptKind.CHECK: ", in a fresh process", AttemptKind.BLAME: ", derived from the end of the process"}
    return f"attempt {past.attempt}{how.get(past.kind, '')}"
