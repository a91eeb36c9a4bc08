"""`watchtest history list|show`: asks the history and prints the answer. Needs no engine and no watcher."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from watchtest.core.model import Lane, Outcome, RunState
from watchtest.errors import UsageError, WorkspaceError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from watchtest.history.queries import PastResult, PastRun, RunDetail

LONGEST_LIST = 10_000
OUTPUT_LINES = 40
FIRST_TO_GO = ("tree", "by", "lane", "took", "when")
"""The columns a narrow terminal does without, in this order."""
STYLES = {
    RunState.PASSED: "green",
    RunState.FAILED: "red",
    RunState.ERROR: "red",
    RunState.TIMED_OUT: "red",
    RunState.BROKEN: "yellow",
}


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("history", help="ask what happened to the tests")
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="history_action", metavar="list|show", required=True)
    listing = actions.add_parser("list", help="the latest runs, newest first")
    listing.add_argument("-n", dest="limit", type=_limit, default=20, metavar="N", help="how many (default: 20)")
    listing.add_argument("--lane", choices=[lane.value for lane in Lane], help="only runs of this lane")
    listing.add_argument(
        "--state",
        action="append",
        default=[],
        choices=[state.value for state in RunState],
        metavar="STATE",
        help="only runs in this state; may be given again",
    )
    show = actions.add_parser("show", help="one run: its states, its failures, its output")
    show.add_argument(
        "name", nargs="?", default="last", metavar="RUN", help="an id, or last (default), last-failed, last-green"
    )
    show.add_argument("--tests", action="store_true", help="every test, not only the red ones")
    show.add_argument("--output", action="store_true", help="all that is kept of the runner's output")
    for action in (listing, show):
        action.add_argument("--all-worktrees", action="store_true", help="runs of every worktree of the repository")
        action.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    workspace = _workspace(arguments)
    asked = None if arguments.all_worktrees else str(workspace)
    path = _path(workspace)
    return _list(arguments, path, asked) if arguments.history_action == "list" else _show(arguments, path, asked)


# -- list ------------------------------------------------------------------------------------------


def _list(arguments: argparse.Namespace, path: Path, workspace: str | None) -> int:
    from watchtest.history.opening import is_there, reading
    from watchtest.history.queries import recent
    from watchtest.history.shape import run_shape

    runs: tuple[PastRun, ...] = ()
    if is_there(path):
        with reading(path) as connection:
            runs = recent(
                connection,
                limit=arguments.limit,
                workspace=workspace,
                lane=Lane(arguments.lane) if arguments.lane else None,
                states=[RunState(state) for state in arguments.state],
            )
    if arguments.json:
        print(json.dumps({"runs": [run_shape(run) for run in runs]}, indent=2))
    elif runs:
        _print_list(runs, with_workspace=workspace is None)
    else:
        print("no such runs" if arguments.lane or arguments.state else "no runs yet")
    return 0


def _print_list(runs: tuple[PastRun, ...], *, with_workspace: bool) -> None:
    from rich.table import Table

    from watchtest.views.text import duration, short

    console, say = _console()
    columns = {
        "run": [each.id for each in runs],
        "when": [_when(each.queued_at) for each in runs],
        "lane": [each.lane.value for each in runs],
        "by": [each.trigger.value for each in runs],
        "state": [each.state.value for each in runs],
        "tests": [_counts(each) for each in runs],
        "took": ["" if each.ended_at is None else duration(each.ended_at - each.queued_at) for each in runs],
        "tree": [short(each.tree or "") for each in runs],
    }
    if with_workspace:
        columns["workspace"] = [each.workspace for each in runs]
    for heading in FIRST_TO_GO:
        if sum(2 + max(map(len, (heading, *cells))) for heading, cells in columns.items()) <= console.width + 2:
            break
        columns.pop(heading, None)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in columns:
        table.add_column(heading, overflow="fold", justify="right" if heading == "took" else "left")
    for run, row in zip(runs, zip(*columns.values(), strict=True), strict=True):
        styles = (STYLES.get(run.state, "") if heading == "state" else "" for heading in columns)
        table.add_row(*map(say, row, styles))
    console.print(table)


# -- show ------------------------------------------------------------------------------------------


def _show(arguments: argparse.Namespace, path: Path, workspace: str | None) -> int:
    from watchtest.history.opening import is_there, reading
    from watchtest.history.queries import detail, recent
    from watchtest.history.shape import detail_shape

    if not is_there(path):
        raise _unknown(arguments.name, [])
    with reading(path) as connection:
        found = detail(connection, arguments.name, workspace)
        if found is None:
            raise _unknown(arguments.name, [run.id for run in recent(connection, limit=200)])
    if arguments.json:
        print(json.dumps(detail_shape(found), indent=2))
    else:
        _print_run(found, with_tests=arguments.tests, with_output=arguments.output)
    return 0


def _unknown(name: str, known: list[str]) -> UsageError:
    from difflib import get_close_matches

    from watchtest.history.queries import NAMED
    from watchtest.views.text import one_line

    if not known:
        return UsageError(f"history show {one_line(name)}: there are no runs yet", hint="start one: watchtest watch")
    if name in NAMED:
        return UsageError(f"history show {name}: no run of this workspace is that", hint="see: watchtest history list")
    close = get_close_matches(name, [*NAMED, *known], n=1)
    hint = f"did you mean {close[0]}?" if close else "see: watchtest history list"
    return UsageError(f"history show {one_line(name)}: no such run", hint=hint)


def _print_run(detail: RunDetail, *, with_tests: bool, with_output: bool) -> None:
    from rich.table import Table

    from watchtest.views.text import clean, tail

    console, say = _console()
    run = detail.run
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, fact in _facts(detail):
        if fact:
            facts.add_row(name, say(fact, STYLES.get(run.state, "") if name == "state" else ""))
    console.print(facts)
    last = {past.result.test: past for past in detail.results}
    for past in last.values():
        if past.result.outcome.is_red:
            _print_failure(console, say, past)
    if with_tests:
        _print_tests(console, say, detail)
    is_all_there_is = not detail.results and run.state not in (RunState.PASSED, RunState.NO_TESTS)
    if detail.raw_output and (with_output or is_all_there_is):
        lines = clean(detail.raw_output).splitlines() if with_output else tail(detail.raw_output, OUTPUT_LINES)
        console.print(say("\n" + "\n".join(lines)), soft_wrap=True)


def _facts(detail: RunDetail) -> list[tuple[str, str]]:
    from watchtest.views.text import duration, tests

    run = detail.run
    changes = {True: "with changes", False: "clean", None: ""}[run.is_dirty]
    steps = " > ".join(f"{each.state.value} +{duration(each.at - run.queued_at)}" for each in detail.transitions)
    scope = run.because if run.selected is None else f"{tests(run.selected)}: {run.because}"
    return [
        ("run", run.id),
        ("state", run.state.value + (f": {run.reason}" if run.reason else "")),
        ("tests", _counts(run)),
        ("when", _when(run.queued_at)),
        ("steps", steps),
        ("lane", f"{run.lane.value}, begun by {run.trigger.value}"),
        ("selection", scope),
        ("tree", run.tree or ""),
        ("head", " ".join(part for part in (run.head, run.branch, changes) if part)),
        ("box", run.environment or ""),
        ("workspace", run.workspace),
    ]


def _print_failure(console: Console, say: Callable[..., Text], past: PastResult) -> None:
    from watchtest.views.text import clean

    result, failure = past.result, past.result.failure
    where = f"  {failure.where.file}:{failure.where.line}" if failure and failure.where else ""
    attempt = f"  (attempt {past.attempt})" if past.attempt > 1 else ""
    console.print()
    console.print(say(f"{result.outcome.value.upper()} {result.test}{where}{attempt}", "bold red"), soft_wrap=True)
    if failure is None:
        return
    for part in (failure.text or failure.message, failure.output):
        for line in clean(part).rstrip().splitlines():
            console.print(say(f"    {line}"), soft_wrap=True)


def _print_tests(console: Console, say: Callable[..., Text], detail: RunDetail) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("outcome", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("test", overflow="fold")
    for past in detail.results:
        outcome = past.result.outcome
        style = "red" if outcome.is_red else "green" if outcome is Outcome.PASSED else ""
        attempt = f" (attempt {past.attempt})" if past.attempt > 1 else ""
        table.add_row(say(outcome.value, style), say(f"{past.result.duration_s:.3f}"), say(past.result.test + attempt))
    console.print()
    console.print(table)


# -- words, and the edge ---------------------------------------------------------------------------


def _console() -> tuple[Console, Callable[..., Text]]:
    """Where to print, and how to say text from a box there: never as markup, never as control sequences."""
    from rich.console import Console
    from rich.text import Text

    from watchtest.views.text import clean, encodable

    console = Console(highlight=False, markup=False, emoji=False)

    def say(text: str, style: str = "") -> Text:
        return Text(encodable(clean(text), console.encoding), style=style)

    return console, say


def _counts(run: PastRun) -> str:
    red_first = sorted(run.counts, key=lambda outcome: not outcome.is_red)
    return ", ".join(f"{run.counts[outcome]} {outcome.value}" for outcome in red_first)


def _when(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")


def _limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= LONGEST_LIST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {LONGEST_LIST}")
    return int(text)


def _workspace(arguments: argparse.Namespace) -> Path:
    from watchtest.workspace import find

    try:
        return find(arguments.workspace or Path.cwd())
    except FileNotFoundError as error:
        raise WorkspaceError(
            "the current folder no longer exists", hint="change to another, or name one with -C"
        ) from error


def _path(workspace: Path) -> Path:
    from platformdirs import user_state_path

    from watchtest.history.path import history_path

    chosen = os.environ.get("WATCHTEST_STATE_DIR")
    return history_path(Path(chosen) if chosen else user_state_path("watchtest"), workspace)
