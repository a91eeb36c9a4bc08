"""`watchtest run`: ask the running watcher for a run, and with `--wait` leave with its end."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from watchtest.client.watcher import Report, Watcher, add_lane
from watchtest.core.model import RunState
from watchtest.core.text import clean, one_line
from watchtest.exit_codes import EXIT_CODES, TIMED_OUT

POLICIES = ("all", "failed", "affected")


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("run", help="ask the running watcher for a run")
    parser.add_argument("tests", nargs="*", metavar="TEST", help="a test, or a file or folder of tests")
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument("--all", dest="policy", action="store_const", const="all", help="all tests")
    how_much.add_argument("--failed", dest="policy", action="store_const", const="failed", help="those known to fail")
    how_much.add_argument(
        "--affected", dest="policy", action="store_const", const="affected", help="those that changes can affect"
    )
    how_much.add_argument("--again", action="store_true", help="the last tests once more")
    how_much.add_argument("--match", metavar="TEXT", help="known tests with these words in their names")
    parser.add_argument("--wait", action="store_true", help="until it has ended; its verdict is the exit code")
    parser.add_argument("--timeout", type=float, metavar="S", help="with --wait: not longer than this (exit code 124)")
    add_lane(parser, "the highest that is on")
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.tests and (arguments.policy or arguments.again or arguments.match):
        given = arguments.policy or ("again" if arguments.again else "match")
        arguments.parser.error(f"argument --{given}: not allowed with a TEST")
    if arguments.timeout is not None and not arguments.wait:
        arguments.parser.error("argument --timeout: needs --wait")
    watcher = Watcher(arguments)
    body: dict[str, object] = {}
    if arguments.lane:
        body["lane"] = arguments.lane
    if arguments.tests:
        body["tests"] = [_from_the_workspace(test, watcher.folder, Path.cwd()) for test in arguments.tests]
    if arguments.policy:
        body["policy"] = arguments.policy
    if arguments.again:
        body["again"] = True
    if arguments.match:
        body["matching"] = arguments.match
    report = watcher.post("/runs", body)
    if not arguments.wait:
        print(f"run {report['id']} {report['state']}{_because(report)}")
        return 0
    told: set[str] = set()

    def tell(report: Report) -> None:
        reason = _because(report) if report["state"] == "queued" else ""
        if reason and reason not in told:
            told.add(reason)
            print(f"watchtest: run {report['id']} waits{reason}", file=sys.stderr)

    name, end = _followed(watcher, report["id"], arguments.timeout, tell)
    if end is None:
        print(f"run {name} has not ended within {arguments.timeout:g} s; it goes on")
        return TIMED_OUT
    print(f"run {end['id']} {end['state'].replace('_', ' ')}{_because(end)}{_counted(end)}")
    return EXIT_CODES[RunState(end["state"])]


def _followed(
    watcher: Watcher, name: str, limit_s: float | None, tell: Callable[[Report], None]
) -> tuple[str, Report | None]:
    """The last run of those that went on in place of the one that was asked for, each superseded; and its end."""
    deadline = None if limit_s is None else time.monotonic() + limit_s
    while True:
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        end = watcher.end_of(name, left_s, tell)
        if end is None or end["state"] != RunState.SUPERSEDED or not end.get("successor"):
            return name, end
        print(f"watchtest: run {name} superseded{_because(end)}", file=sys.stderr)
        name = end["successor"]


def _from_the_workspace(test: str, workspace: Path, here: Path) -> str:
    """Files are named from where the user stands; results name them from the workspace."""
    file, separator, rest = test.partition("::")
    path = (here / file).resolve()
    if not file or not path.exists() or not path.is_relative_to(workspace):
        return test
    return f"{path.relative_to(workspace).as_posix()}{separator}{rest}"


def _because(report: Report) -> str:
    return f": {one_line(report['reason'])}" if report["reason"] else ""


def _counted(report: Report) -> str:
    counts = [f"{count} {outcome}" for outcome, count in report["counts"].items() if count]
    return clean(f" ({', '.join(counts)})") if counts else ""
