"""`history list` and `history show`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from watchtest.client.history_access import (
    NAMES_OF_RUNS,
    add_filters,
    answer,
    asked_lane,
    asked_since,
    asked_workspace,
    limit,
    print_json,
    unknown_run,
)
from watchtest.client.history_tables import STYLES, Say, console_and_say, plain_table, seconds, when, without_columns
from watchtest.core.model import Outcome, RunState

if TYPE_CHECKING:
    from rich.console import Console

    from watchtest.history.queries.run_queries import PastResult, PastRun, RunDetail

OUTPUT_LINES = 40
FIRST_TO_GO = ("branch", "tree", "by", "lane", "took", "when")
"""The columns a narrow terminal does without, in this order."""


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", dest="limit", type=limit, default=20, metavar="N", help="how many (default: 20)")
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        choices=[state.value for state in RunState],
        metavar="STATE",
        help="only runs in this state; may be given again",
    )
    parser.add_argument("--branch", metavar="NAME", help="only runs of this branch")
    parser.add_argument("--full", action="store_true", help="only runs of all tests")
    add_filters(parser, since="all")
    parser.set_defaults(run=_list)


def _add_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="last", metavar="RUN", help=NAMES_OF_RUNS)
    parser.add_argument("--tests", action="store_true", help="every test, not only the red ones")
    parser.add_argument("--output", action="store_true", help="all that is kept of the runner's output")
    add_filters(parser, lane=False)
    parser.set_defaults(run=_show)


ADD = {"list": _add_list, "show": _add_show}


# -- list ------------------------------------------------------------------------------------------


def _list(arguments: argparse.Namespace) -> int:
    from watchtest.history.queries.json_answers import run_shape
    from watchtest.history.queries.run_queries import recent

    workspace = asked_workspace(arguments)
    runs = (
        answer(
            arguments,
            lambda connection: recent(
                connection,
                limit=arguments.limit,
                workspace=workspace,
                lane=asked_lane(arguments),
                states=[RunState(state) for state in arguments.state],
                since=asked_since(arguments),
                branch=arguments.branch,
                is_whole=arguments.full,
            ),
        )
        or ()
    )
    is_filtered = arguments.lane or arguments.state or arguments.branch or arguments.full or arguments.since
    if arguments.json:
        print_json({"runs": [run_shape(run) for run in runs]})
    elif runs:
        _print_list(runs, with_workspace=workspace is None)
    else:
        print("no such runs" if is_filtered else "no runs yet")
    return 0


def _print_list(runs: tuple[PastRun, ...], *, with_workspace: bool) -> None:
    from watchtest.core.text import duration, short

    console, say = console_and_say()
    columns = {
        "run": [each.id for each in runs],
        "when": [when(each.queued_at) for each in runs],
        "lane": [each.lane.value for each in runs],
        "by": [each.trigger.value if each.imported_from is None else "import" for each in runs],
        "state": [each.state.value for each in runs],
        "tests": [_counts(each) for each in runs],
        "took": ["" if each.duration_s is None else duration(each.duration_s) for each in runs],
        "tree": [short(each.tree or "") for each in runs],
        "branch": [(each.branch or "")[:30] for each in runs],
    }
    if with_workspace:
        columns["workspace"] = [each.workspace for each in runs]
    without_columns(columns, FIRST_TO_GO, console.width)
    table = plain_table(list(columns), right=("took",))
    for run, row in zip(runs, zip(*columns.values(), strict=True), strict=True):
        styles = (STYLES.get(run.state, "") if heading == "state" else "" for heading in columns)
        table.add_row(*map(say, row, styles))
    console.print(table)


# -- show ------------------------------------------------------------------------------------------


def _show(arguments: argparse.Namespace) -> int:
    from watchtest.history.queries.json_answers import detail_shape
    from watchtest.history.queries.run_queries import detail, recent
    from watchtest.history.store.database import Connection

    def question(connection: Connection) -> RunDetail:
        found = detail(connection, arguments.name, asked_workspace(arguments))
        if found is None:
            raise unknown_run("show", arguments.name, [run.id for run in recent(connection, limit=200)])
        return found

    found = answer(arguments, question)
    if found is None:
        raise unknown_run("show", arguments.name, [])
    if arguments.json:
        print_json(detail_shape(found))
    else:
        _print_run(found, with_tests=arguments.tests, with_output=arguments.output)
    return 0


def _print_run(detail: RunDetail, *, with_tests: bool, with_output: bool) -> None:
    from rich.table import Table

    from watchtest.core.text import clean, tail

    console, say = console_and_say()
    run = detail.run
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, fact in _facts(detail):
        if fact:
            facts.add_row(name, say(fact, STYLES.get(run.state, "") if name == "state" else ""))
    console.print(facts)
    for past in detail.last_words:
        if past.result.outcome.is_red:
            _print_failure(console, say, past)
    if with_tests:
        _print_tests(console, say, detail)
    is_all_there_is = not detail.results and run.state not in (RunState.PASSED, RunState.NO_TESTS)
    if detail.raw_output and (with_output or is_all_there_is):
        lines = clean(detail.raw_output).splitlines() if with_output else tail(detail.raw_output, OUTPUT_LINES)
        console.print(say("\n" + "\n".join(lines)), soft_wrap=True)


def _facts(detail: RunDetail) -> list[tuple[str, str]]:
    from watchtest.core.text import duration, tests

    run = detail.run
    changes = {True: "with changes", False: "clean", None: ""}[run.is_dirty]
    steps = " > ".join(f"{each.state.value} +{duration(each.at - run.queued_at)}" for each in detail.transitions)
    scope = run.because if run.selected is None else f"{tests(run.selected)}: {run.because}"
    return [
        ("run", run.id),
        ("state", run.state.value + (f": {run.reason}" if run.reason else "")),
        ("tests", _counts(run)),
        ("when", when(run.queued_at)),
        ("steps", steps),
        ("times", _times(run)),
        ("from", run.imported_from or ""),
        ("lane", f"{run.lane.value}, begun by {run.trigger.value}"),
        ("selection", scope),
        ("tree", run.tree or ""),
        ("head", " ".join(part for part in (run.head, run.branch, changes) if part)),
        ("box", run.environment or ""),
        ("workspace", run.workspace),
    ]


def _times(run: PastRun) -> str:
    parts = ("wait", "sync", "select", "start", "run")
    spent = [(part, getattr(run.timings, f"{part}_s")) for part in parts]
    return " · ".join(f"{part} {seconds(took)}" for part, took in spent if took is not None)


def _print_failure(console: Console, say: Say, past: PastResult) -> None:
    from watchtest.core.text import clean

    result, failure = past.result, past.result.failure
    where = f"  {failure.where.file}:{failure.where.line}" if failure and failure.where else ""
    attempt = f"  ({_attempt(past)})" if past.attempt > 1 else ""
    console.print()
    console.print(say(f"{result.outcome.value.upper()} {result.test}{where}{attempt}", "bold red"), soft_wrap=True)
    if failure is None:
        return
    for part in (failure.text or failure.message, failure.output):
        for line in clean(part).rstrip().splitlines():
            console.print(say(f"    {line}"), soft_wrap=True)


def _print_tests(console: Console, say: Say, detail: RunDetail) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("outcome", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("test", overflow="fold")
    for past in detail.results:
        outcome = past.result.outcome
        style = "red" if outcome.is_red else "green" if outcome is Outcome.PASSED else ""
        attempt = f" ({_attempt(past)})" if past.attempt > 1 else ""
        table.add_row(say(outcome.value, style), say(f"{past.result.duration_s:.3f}"), say(past.result.test + attempt))
    console.print()
    console.print(table)


def _attempt(past: PastResult) -> str:
    from watchtest.history.store.columns import AttemptKind

    why = {AttemptKind.CHECK: ", in a fresh process", AttemptKind.BLAME: ", by the end of the process"}
    return f"attempt {past.attempt}{why.get(past.kind, '')}"


def _counts(run: PastRun) -> str:
    red_first = sorted(run.counts, key=lambda outcome: not outcome.is_red)
    return ", ".join(f"{run.counts[outcome]} {outcome.value}" for outcome in red_first)
