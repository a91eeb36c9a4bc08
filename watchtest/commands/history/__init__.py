"""`watchtest history …`: asks the history and prints the answer. Needs no engine and no watcher.

Each action has its module, which is imported when it is asked for.
"""

from __future__ import annotations

import argparse
import importlib

ACTIONS = {
    "list": ("runs", "the latest runs, newest first"),
    "show": ("runs", "one run: its states, its failures, its output"),
    "test": ("test", "one test: what became of it, since when, what had changed"),
    "compare": ("compare", "two runs: new failures, fixed, slower, …"),
    "analyse": ("analyse", "the failures of a run by what they have in common, and the suspects"),
    "flaky": ("flaky", "tests that pass and fail on the same code, and what proves it"),
    "slowest": ("numbers", "where the time of the tests goes"),
    "trend": ("numbers", "runs of all tests over time"),
    "cost": ("numbers", "time spent on tests, and saved by leaving some out"),
    "html": ("html", "one page to look at in a browser"),
    "export": ("reports", "a run as JUnit XML or CTRF JSON"),
    "import": ("reports", "a report of another tool, as a run"),
    "prune": ("prune", "drop old runs; see first which"),
}


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("history", help="ask what happened to the tests")
    actions = parser.add_subparsers(dest="history_action", metavar="|".join(ACTIONS), required=True)
    for name, (module, text) in ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text)
        part = importlib.import_module(f"{__name__}.{module}")
        part.ADD[name](action)
