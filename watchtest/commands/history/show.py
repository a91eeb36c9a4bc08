"""`watchtest history show`: show one run.

Show the states and failures of one run.

    watchtest history show last-failed --output
"""

from __future__ import annotations

import argparse

from watchtest.client.history_access import print_answer, query_runs
from watchtest.client.history_options import add_filters, add_run
from watchtest.client.history_tables import Screen, counts, format_seconds, format_time, state, style
from watchtest.core.model import Outcome, RunState
from watchtest.core.text import clean, duration, tail, tests
from watchtest.history.queries.json_answers import detail_json
from watchtest.history.queries.run_queries import PastResult, RunDetail, run_detail
from watchtest.history.store.columns import AttemptKind

OUTPUT_LINES = 40


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--tests", action="store_true", help="show all tests, not only the failed ones")
    parser.add_argument("--output", action="store_true", help="show the complete output of the runner")
    add_filters(parser, with_lane=False)


def run(arguments: argparse.Namespace) -> int:
    found = query_runs(arguments, run_detail, arguments.name)
    return print_answer(arguments, detail_json(found), lambda: _print(found, arguments.tests, arguments.output))


def _print(detail: RunDetail, with_tests: bool, with_output: bool) -> None:
    from rich.table import Table

    screen = Screen()
    run = detail.run
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, fact in _facts(detail):
        if fact:
            facts.add_row(name, screen.text(fact, style(run) if name == "state" else ""))
    screen.console.print(facts)
    for past in detail.final_results:
        if past.result.outcome.is_red:
            _print_failure(screen, past)
    if with_tests:
        screen.print()
        _print_tests(screen, detail)
    has_nothing_else = not detail.results and run.state not in (RunState.PASSED, RunState.NO_TESTS)
    if detail.raw_output and (with_output or has_nothing_else):
        lines = clean(detail.raw_output).splitlines() if with_output else tail(detail.raw_output, OUTPUT_LINES)
        screen.print("\n" + "\n".join(lines))


def _facts(detail: RunDetail) -> list[tuple[str, str]]:
    run = detail.run
    changes = {True: "with uncommitted changes", False: "clean", None: ""}[run.is_dirty]
    phases = [(phase, getattr(run.timings, f"{phase}_s")) for phase in ("wait", "sync", "select", "start", "run")]
    steps = [f"{each.state.value} +{duration(each.at - run.queued_at)}" for each in detail.transitions]
    return [
        ("run", run.id),
        ("state", state(run) + (f": {run.reason}" if run.reason else "")),
        ("tests", counts(run)),
        ("when", format_time(run.queued_at)),
        ("steps", " > ".join(steps)),
        ("times", " · ".join(f"{phase} {format_seconds(spent)}" for phase, spent in phases if spent is not None)),
        ("from", run.imported_from or ""),
        ("lane", f"{run.lane.value}, triggered by {run.trigger.value}"),
        ("selection", run.because if run.selected is None else f"{tests(run.selected)}: {run.because}"),
        ("tree", run.tree or ""),
        ("head", " ".join(part for part in (run.head, run.branch, changes) if part)),
        ("box", run.environment or ""),
        ("workspace", run.workspace),
    ]


def _print_failure(screen: Screen, past: PastResult) -> None:
    result, failure = past.result, past.result.failure
    where = f"  {failure.where.file}:{failure.where.line}" if failure and failure.where else ""
    attempt = f" {_attempt(past)}" if past.attempt > 1 else ""
    screen.print(f"\n{result.outcome.value.upper()} {result.test}{where}{attempt}", style="bold red")
    for part in (failure.text or failure.message, failure.output) if failure else ():
        for line in clean(part).rstrip().splitlines():
            screen.print(f"    {line}")


def _print_tests(screen: Screen, detail: RunDetail) -> None:
    results = [past.result for past in detail.results]
    styles = ["red" if each.outcome.is_red else "green" if each.outcome is Outcome.PASSED else "" for each in results]
    screen.table(
        [
            ("outcome", [screen.text(each.outcome.value, style) for each, style in zip(results, styles, strict=True)]),
            ("seconds", [f"{each.duration_s:.3f}" for each in results]),
            ("test", [past.result.test + _attempt(past) for past in detail.results]),
        ],
        right=("seconds",),
    )


def _attempt(past: PastResult) -> str:
    """Return ` (attempt 2, in a fresh process)`, or nothing for a first attempt."""
    how = {AttemptKind.CHECK: ", in a fresh process", AttemptKind.BLAME: ", derived from the end of the process"}
    return f" (attempt {past.attempt}{how.get(past.kind, '')})" if past.attempt > 1 else ""
