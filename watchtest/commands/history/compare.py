"""`watchtest history compare`: compare two runs.

Show new failures, fixed tests, tests that fail in another way, and slower ones.

    watchtest history compare last-green last
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from watchtest.client.history_access import (
    add_filters,
    chosen_workspace,
    print_json,
    query_history,
    require_run,
    unknown_run_error,
)
from watchtest.client.history_tables import Styled, describe_run, format_seconds, list_paths, make_console
from watchtest.commands import Subparsers, add_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from watchtest.history.queries.run_comparison import Comparison, TestPair
    from watchtest.history.store.database import Connection

MOST_SHOWN = 30


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "compare", run, __doc__)
    parser.add_argument("before", metavar="A", help="the earlier run: an id, or last, last-failed, last-green")
    parser.add_argument("after", metavar="B", nargs="?", default="last", help="the later run (default: last)")
    parser.add_argument("--all", action="store_true", help="list all tests, however many")
    add_filters(parser, lane=False)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.history.queries.json_answers import to_json
    from watchtest.history.queries.run_comparison import compare

    def query(connection: Connection) -> Comparison:
        workspace = chosen_workspace(arguments)
        before, after = (
            require_run(connection, name, workspace, "compare") for name in (arguments.before, arguments.after)
        )
        return compare(connection, before, after)

    found = query_history(arguments, query, None)
    if found is None:
        raise unknown_run_error("compare", arguments.before, [])
    if arguments.json:
        print_json(to_json(found))
    else:
        _print(found, 10**9 if arguments.all else MOST_SHOWN)
    return 0


def _print(found: Comparison, most: int) -> None:
    console, styled = make_console()
    console.print(styled(f"from {describe_run(found.before)}: {found.before.state.value}"), soft_wrap=True)
    console.print(styled(f"to   {describe_run(found.after)}: {found.after.state.value}"), soft_wrap=True)
    changed = "unknown" if found.paths is None else list_paths(found.paths, 10) or "nothing"
    console.print(styled(f"changed between them: {changed}", "dim"), soft_wrap=True)
    parts: list[tuple[str, str, tuple[TestPair, ...], Callable[[TestPair], str]]] = [
        ("new failures", "bold red", found.new_failures, _new),
        ("still failing, with another message", "red", found.failing_otherwise, _failing_otherwise),
        ("still failing", "red", found.failing_alike, _signature),
        ("fixed", "green", found.fixed, lambda _: ""),
        ("added", "", found.added, _outcome),
        ("removed", "", found.removed, lambda _: ""),
        ("slower", "yellow", found.slower, _slower),
        ("not run or skipped in one of the two runs", "dim", found.not_run, _not_run),
    ]
    for title, style, pairs, describe in parts:
        _print_part(console, styled, title, style, pairs, describe, most)
    if not any(pairs for _, _, pairs, _ in parts):
        console.print(styled("\nno test differs"))


def _print_part(
    console: Console,
    styled: Styled,
    title: str,
    style: str,
    pairs: tuple[TestPair, ...],
    describe: Callable[[TestPair], str],
    most: int,
) -> None:
    if not pairs:
        return
    console.print()
    console.print(styled(f"{title}: {len(pairs)}", style))
    for pair in pairs[:most]:
        console.print(styled(f"  {pair.identity}{describe(pair)}"), soft_wrap=True)
    if len(pairs) > most:
        console.print(styled(f"  … and {len(pairs) - most} more; --all shows them", "dim"))


def _new(pair: TestPair) -> str:
    was = pair.before.outcome.value if pair.before is not None else "missing or not run"
    return f"  (was {was})  {pair.after.signature if pair.after else ''}"


def _signature(pair: TestPair) -> str:
    return f"  {pair.after.signature}" if pair.after else ""


def _failing_otherwise(pair: TestPair) -> str:
    return f"\n    was {pair.before.signature}\n    is  {pair.after.signature}" if pair.before and pair.after else ""


def _outcome(pair: TestPair) -> str:
    return f"  {pair.after.outcome.value}" if pair.after else ""


def _slower(pair: TestPair) -> str:
    return (
        f"  {format_seconds(pair.before.duration_s)} -> {format_seconds(pair.after.duration_s)}"
        if pair.before and pair.after
        else ""
    )


def _not_run(pair: TestPair) -> str:
    runs = (("A", pair.before), ("B", pair.after))
    return f"  ({', '.join(f'{result.outcome.value} in {run}' for run, result in runs if result is not None)})"
