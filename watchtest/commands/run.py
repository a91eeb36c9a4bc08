"""`watchtest run`: ask the watcher to run tests.

Ask the running watcher for a run. Without tests or options, it runs what the lane's policy says. To run tests without a
watcher, use `watchtest watch --once`.

    watchtest run tests/test_cart.py --wait
    watchtest run --failed
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from watchtest.client.status_file import is_outdated
from watchtest.client.watcher import Document, Watcher, from_workspace
from watchtest.commands import add_lane, add_wait, check_wait, say
from watchtest.core.model import RunState
from watchtest.core.text import clean, one_line, with_provisional
from watchtest.exit_codes import OF_RUN, RED, TIMED_OUT

POLICIES = {
    "all": "run all tests",
    "failed": "run the tests that are known to fail",
    "affected": "run the tests that pending changes can affect",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tests", nargs="*", metavar="TEST", help="a test id, or a file or folder of tests")
    which = parser.add_mutually_exclusive_group()
    for policy, text in POLICIES.items():
        which.add_argument(f"--{policy}", dest="policy", action="store_const", const=policy, help=text)
    which.add_argument("--again", action="store_true", help="repeat the last tests")
    which.add_argument("--match", metavar="TEXT", help="run known tests whose names contain all these words")
    add_wait(parser, "wait for the end; the exit code is the result")
    add_lane(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.tests and (arguments.policy or arguments.again or arguments.match):
        given = arguments.policy or ("again" if arguments.again else "match")
        arguments.parser.error(f"argument --{given}: not allowed with a TEST")
    check_wait(arguments)
    watcher = Watcher(arguments)
    body = {
        "lane": arguments.lane,
        "tests": [from_workspace(test, watcher.folder) for test in arguments.tests],
        "policy": arguments.policy,
        "again": arguments.again,
        "matching": arguments.match,
    }
    report = watcher.post("/runs", {key: value for key, value in body.items() if value})
    if not arguments.wait:
        print(f"run {report['id']} {report['state']}{_reason(report)}")
        return 0
    reported: set[str] = set()

    def report_wait(report: Document) -> None:
        reason = _reason(report) if report["state"] == "queued" else ""
        if reason and reason not in reported:
            reported.add(reason)
            say(f"run {report['id']} is waiting{reason}")

    name, end = _wait_for_end(watcher, report["id"], arguments.timeout, report_wait)
    if end is None:
        print(f"run {name} has not ended within {arguments.timeout:g} s; it continues")
        return TIMED_OUT
    provisional = end.get("provisional") or {}
    state = with_provisional(end["state"].replace("_", " "), provisional.get("message", ""))
    print(f"run {end['id']} {state}{_reason(end)}{_counts(end)}")
    return RED if is_outdated(provisional) else OF_RUN[end["state"]]


def _wait_for_end(
    watcher: Watcher, name: str, limit_s: float | None, on_progress: Callable[[Document], None]
) -> tuple[str, Document | None]:
    """Return the id and the final report of a run, or of the run that superseded it; None after the time limit."""
    deadline = None if limit_s is None else time.monotonic() + limit_s
    while True:
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        end = watcher.wait_for_end(name, left_s, on_progress)
        if end is None or end["state"] != RunState.SUPERSEDED or not end.get("successor"):
            return name, end
        say(f"run {name} superseded{_reason(end)}")
        name = end["successor"]


def _reason(report: Document) -> str:
    return f": {one_line(report['reason'])}" if report["reason"] else ""


def _counts(report: Document) -> str:
    counts = [f"{count} {outcome}" for outcome, count in report["counts"].items() if count]
    return clean(f" ({', '.join(counts)})") if counts else ""
